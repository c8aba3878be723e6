package server

// applyRenew queues the hashes of a renew and answers it.
func applyRenew(s *session, j *job) error {
	if err := j.service.Backend().CheckRenew(); err != nil {
		return err
	}
	s.server.renewer.Add(s, j.service, j.takeHashes(), j.q.HashLen)
	j.done(nil)
	return nil
}
