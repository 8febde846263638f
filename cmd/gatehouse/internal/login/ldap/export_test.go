package ldap

import "time"

// ServerStats are a moment's numbers of a server.
type ServerStats struct {
	Open     int
	Failures uint64
	// PassedOver reports whether other servers are asked first, since it failed.
	PassedOver bool
}

// Servers returns the numbers of the servers, in the order of the configuration.
func (d *Directory) Servers() []ServerStats {
	var all []ServerStats
	for _, s := range d.servers {
		all = append(all, ServerStats{int(s.open.Load()), s.failures.Load(), s.until.Load() > time.Now().UnixNano()})
	}
	return all
}
