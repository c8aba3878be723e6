package lookup

import "github.com/hitline/hitline/index"

// Index returns the memory index of the service, nil over a backend.
func (s *Service) Index() *index.Index { return s.index }
