package api

// DefaultTenant is the tenant of models and queries that name none.
const DefaultTenant = "default"
