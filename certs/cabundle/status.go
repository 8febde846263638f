package cabundle

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

// Status is what was read of one configuration.
type Status struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Read reports whether it was read once, and Found whether it exists.
	Read  bool `json:"read"`
	Found bool `json:"found"`
	// Problem is why it cannot be read now, "" if it can. What else is here was then
	// read earlier.
	Problem string `json:"problem,omitempty"`
	// Deleting tells that it is going away.
	Deleting bool `json:"deleting,omitempty"`
	// Injector is the annotation by which cert-manager's cainjector writes the
	// caBundle, "" without.
	Injector string `json:"injector,omitempty"`
	// Entries are its webhooks, in its order.
	Entries []Entry `json:"entries"`
}

// Entry is one webhook of a configuration.
type Entry struct {
	Name string `json:"name"`
	// Server is the name or address that the API server calls and that the
	// certificate must have.
	Server string `json:"server"`
	// Ours reports whether that is one of WatcherConfig.Hosts; it is true of all if
	// there are none.
	Ours bool `json:"ours"`
	// Bundle are the certificates of the caBundle, in its order. Without any, Remark
	// reports whether there is a caBundle.
	Bundle []Certificate `json:"bundle"`
	// Remark says what is wrong with the caBundle itself, "" if nothing is.
	Remark string `json:"remark,omitempty"`
	// Managers are who wrote the caBundle, the latest first. FieldManager is a
	// Publisher.
	Managers []Manager `json:"managers,omitempty"`
}

// Certificate is a certificate of a caBundle.
type Certificate struct {
	Subject string `json:"subject"`
	// ID is as rotation.ID has it.
	ID       string    `json:"id"`
	NotAfter time.Time `json:"notAfter"`
}

// Status is what was read last, in the order of the registrations. A
// configuration that need not exist, because that of the other kind does, is left
// out unless it exists.
func (w *Watcher) Status() []Status {
	known, bundles := w.snapshot()
	var list []Status
	for i, k := range known {
		if k.read && k.found == nil && !w.isMissed(i, known) {
			continue
		}
		s := Status{Kind: w.targets[i].kind.name, Name: w.targets[i].name, Read: k.read}
		if k.failed != nil {
			s.Problem = k.failed.err.Error()
		}
		if o := k.found; o != nil {
			s.Found, s.Deleting, s.Injector = true, o.deleting, o.injector
			for _, e := range o.entries {
				s.Entries = append(s.Entries, statusOf(o, e, bundles[e.raw], len(hosts(w.cfg.Hosts).ours(&object{entries: []entry{e}})) > 0))
			}
		}
		list = append(list, s)
	}
	return list
}

// isMissed reports whether a target that does not exist should.
func (w *Watcher) isMissed(i int, known []targetState) bool {
	for _, g := range w.groups {
		others := false
		for _, j := range g {
			others = others || known[j].found != nil
		}
		for _, j := range g {
			if i == j && !others {
				return true
			}
		}
	}
	return false
}

func statusOf(o *object, e entry, b *bundle, ours bool) Entry {
	s := Entry{Name: e.name, Server: e.server, Ours: ours, Managers: o.managers(e.name), Remark: b.remark()}
	switch {
	case b.empty:
		s.Remark = "no caBundle"
	case len(b.certs) == 0 && s.Remark == "":
		s.Remark = "there is no certificate in it"
	}
	for _, cert := range b.certs {
		s.Bundle = append(s.Bundle, Certificate{Subject: cert.Subject.String(), ID: rotation.ID(cert), NotAfter: cert.NotAfter.UTC()})
	}
	return s
}

// Read reads the configurations once. The error holds everything that could not
// be read; what does not exist is no error but not Found.
func Read(ctx context.Context, client certs.Client, registrations []Registration) ([]Status, error) {
	w := NewWatcher(WatcherConfig{Client: client, Registrations: registrations})
	var problems []error
	for i, t := range w.targets {
		if err := w.get(ctx, i); err != nil {
			p := getProblem(t, err)
			w.setProblem(i, p)
			problems = append(problems, p.err)
		}
	}
	return w.Status(), errors.Join(problems...)
}

// get reads one target by its name, which a role that has no list and no watch
// allows too.
func (w *Watcher) get(ctx context.Context, i int) error {
	found, err := getObject(ctx, w.cfg.Client, w.targets[i])
	if err != nil {
		return err
	}
	w.update(i, found)
	return nil
}

// getObject reads a target from the API server, nil if it does not exist.
func getObject(ctx context.Context, client certs.Client, t target) (*object, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	found, err := t.kind.get(ctx, client, t.name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, explained(ctx, err)
	}
	return t.kind.convert(found), nil
}
