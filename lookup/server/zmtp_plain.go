package server

// servePlain makes the reader serve the PLAIN mechanism of ZMTP if the listener has tokens. It is
// called before the first byte: the greeting of a connection that has begun cannot change.
func (s *session) servePlain() {
	if s.settings.Rules.HasTokens() {
		s.conn.reader.SetPlain(s.checkPlain)
	}
}

// checkPlain gives the session the credential of a PLAIN handshake and reports whether it is valid.
func (s *session) checkPlain(username, password []byte) bool {
	if len(password) == 0 {
		_ = s.failAuth(nameOf(s.credential), errToken)
		return false
	}
	_, err := s.authenticate(string(username), password)
	return err == nil
}
