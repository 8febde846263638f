package ldap

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Directories are the directories of a configuration, and for a moment those of
// the one before it. A directory that is the same in both is one for both.
// It is safe for concurrent use.
type Directories struct {
	connections, failures, waiting *prometheus.Desc

	mu    sync.Mutex
	known []*Directory
}

// View is the directories of one configuration.
type View struct{ all []*Directory }

// NewDirectories returns Directories without any directory.
func NewDirectories() *Directories {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("gatehouse_ldap_"+name, help, append([]string{"directory"}, labels...), nil)
	}
	return &Directories{
		connections: desc("connections", "Connections that are open, by server.", "server"),
		failures:    desc("failures_total", "Times that a server could not be asked.", "server"),
		waiting:     desc("waiting", "Logins that wait for a connection."),
	}
}

// Provide returns a Directory for each of the options, in their order. None
// connects before it is asked.
func (d *Directories) Provide(options []Options) ([]*Directory, *View, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := &View{}
	for _, o := range options {
		i := slices.IndexFunc(d.known, func(one *Directory) bool { return one.Same(o) })
		if i >= 0 {
			v.all = append(v.all, d.known[i])
			continue
		}
		one, err := New(o)
		if err != nil {
			return nil, nil, err
		}
		d.known = append(d.known, one)
		v.all = append(v.all, one)
	}
	return v.all, v, nil
}

// Keep forgets the directories that do not belong to the View.
func (d *Directories) Keep(v *View) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = slices.Clone(v.all)
}

// Describe implements prometheus.Collector.
func (d *Directories) Describe(ch chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{d.connections, d.failures, d.waiting} {
		ch <- one
	}
}

// Collect implements prometheus.Collector. Of two configurations of one name the
// later one counts.
func (d *Directories) Collect(ch chan<- prometheus.Metric) {
	d.mu.Lock()
	known := slices.Clone(d.known)
	d.mu.Unlock()
	seen := map[string]bool{}
	for _, one := range slices.Backward(known) {
		name := one.options.Config.Name
		if seen[name] {
			continue
		}
		seen[name] = true
		ch <- prometheus.MustNewConstMetric(d.waiting, prometheus.GaugeValue, float64(one.waiting.Load()), name)
		for _, s := range one.servers {
			ch <- prometheus.MustNewConstMetric(d.connections, prometheus.GaugeValue, float64(s.open.Load()), name, s.address.URL)
			ch <- prometheus.MustNewConstMetric(d.failures, prometheus.CounterValue, float64(s.failures.Load()), name, s.address.URL)
		}
	}
}
