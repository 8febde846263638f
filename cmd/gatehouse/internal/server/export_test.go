package server

import "time"

// Bound is a server with other bounds on connections.
func Bound(o Options, most int, patience time.Duration) *Server {
	s := New(o)
	s.crowd.most, s.crowd.patience = most, patience
	return s
}

// Connections is how many connections count.
func (s *Server) Connections() int {
	s.crowd.mu.Lock()
	defer s.crowd.mu.Unlock()
	return len(s.crowd.all)
}

// EndPatience has the patience with all connections run out.
func (s *Server) EndPatience() {
	s.crowd.mu.Lock()
	defer s.crowd.mu.Unlock()
	for _, one := range s.crowd.all {
		if one.patience.Stop() { // else it has run out, or there is a reason to keep the connection
			one.patience.Reset(0)
		}
	}
}
