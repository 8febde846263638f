package server

import "time"

// NewLimited returns a server with other limits on connections.
func NewLimited(o Options, limit int, firstCall time.Duration) *Server {
	s := New(o)
	s.limiter.limit, s.limiter.firstCall = limit, firstCall
	return s
}

// Connections returns the number of connections that count.
func (s *Server) Connections() int {
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	return len(s.limiter.all)
}

// ExpireUnused closes all connections without a call, as if their time had passed.
func (s *Server) ExpireUnused() {
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	for _, c := range s.limiter.all {
		if !c.proven {
			c.closes.Store(0)
			c.timer.Reset(0)
		}
	}
}
