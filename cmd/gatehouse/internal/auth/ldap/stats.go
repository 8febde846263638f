package ldap

import "time"

// Stats are a moment's numbers of a Directory.
type Stats struct {
	// MaxConnections bounds the connections.
	MaxConnections int
	// Waiting is how many requests wait for a connection, and Waited how many ever
	// had to.
	Waiting int
	Waited  uint64
	// Servers are in the order of the configuration.
	Servers []ServerStats
}

// ServerStats are a moment's numbers of a server.
type ServerStats struct {
	// Server is the URL as it is configured.
	Server string
	// Open are its connections, and Idle those of them that nobody uses.
	Open, Idle int
	// Failures counts the requests for which the server could not be used: it was
	// not reached, had no acceptable certificate, did not answer in time, or said
	// that it is busy or unavailable.
	Failures uint64
	// PassedOver reports whether other servers are asked first, since it failed.
	PassedOver bool
}

// Stats returns the numbers of this moment. It does not wait for any server.
func (d *Directory) Stats() Stats {
	stats := Stats{MaxConnections: cap(d.pool.places), Waiting: int(d.pool.waiting.Load()), Waited: d.pool.waited.Load()}
	now := time.Now().UnixNano()
	for _, s := range d.servers {
		stats.Servers = append(stats.Servers, ServerStats{
			Server: s.address.URL, Open: int(s.open.Load()), Idle: d.pool.idleOf(s),
			Failures: s.failures.Load(), PassedOver: s.until.Load() > now,
		})
	}
	return stats
}
