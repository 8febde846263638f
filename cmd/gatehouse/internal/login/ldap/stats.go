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
	// Open is the number of its connections.
	Open int
	// Failures counts the requests for which the server could not be used: it was
	// not reached, had no acceptable certificate, did not answer in time, or said
	// that it is busy or unavailable.
	Failures uint64
	// PassedOver reports whether other servers are asked first, since it failed.
	PassedOver bool
}

// Stats returns the numbers of this moment. It does not wait for any server.
func (d *Directory) Stats() Stats {
	stats := Stats{MaxConnections: cap(d.places.taken), Waiting: int(d.places.waiting.Load()), Waited: d.places.waited.Load()}
	now := time.Now().UnixNano()
	for _, s := range d.servers {
		stats.Servers = append(stats.Servers, ServerStats{
			Server: s.address.URL, Open: int(s.open.Load()),
			Failures: s.failures.Load(), PassedOver: s.until.Load() > now,
		})
	}
	return stats
}
