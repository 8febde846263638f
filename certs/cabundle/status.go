package cabundle

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/internal/kube"
	"github.com/gatehouse-dev/gatehouse/certs/rotation"
)

// Status is what was read of one configuration.
type Status struct {
	Kind, Name string
	// Found reports whether it exists.
	Found bool
	// Problem is why it cannot be read now, "" if it can. The rest was then read earlier.
	Problem string
	// Injector is the annotation by which cert-manager's cainjector writes the
	// caBundle, "" without, and InjectFrom its value. It ignores IgnoredInjectors, which are there too.
	Injector, InjectFrom string
	IgnoredInjectors     []string
	// Entries are its webhooks, in its order.
	Entries []Entry
}

// Entry is one webhook of a configuration.
type Entry struct {
	Name string
	// Bundle are the certificates of the caBundle, in its order.
	Bundle []Certificate
	// Remark is what is wrong with the caBundle itself, "" if nothing is.
	Remark string
	// Managers are who wrote the caBundle, the latest first. FieldManager is a
	// Publisher.
	Managers []Manager
}

// Certificate is a certificate of a caBundle.
type Certificate struct {
	Subject string `json:"subject"`
	// ID is as rotation.ID has it.
	ID       string    `json:"id"`
	NotAfter time.Time `json:"notAfter"`
}

// Status returns what was read last, in the order of the registrations. A
// configuration that need not exist, because that of the other kind does, is left
// out unless it exists.
func (w *Watcher) Status() []Status {
	known := w.snapshot()
	var list []Status
	for i, k := range known {
		if k.read && k.found == nil && !w.isMissed(i, known) {
			continue
		}
		s := Status{Kind: string(k.kind), Name: k.name}
		if k.failed != nil {
			s.Problem = k.failed.err.Error()
		}
		if o := k.found; o != nil {
			s.Found, s.Injector, s.InjectFrom, s.IgnoredInjectors = true, o.injector, o.injectFrom, o.ignored
			for _, e := range o.entries {
				s.Entries = append(s.Entries, statusOf(o, &e))
			}
		}
		list = append(list, s)
	}
	return list
}

// isMissed reports whether a target that does not exist should.
func (w *Watcher) isMissed(i int, known []targetState) bool {
	return slices.ContainsFunc(w.groups, func(g group) bool {
		return slices.Contains(g, i) && !slices.ContainsFunc(g, func(j int) bool { return known[j].found != nil })
	})
}

func statusOf(o *object, e *entry) Entry {
	b := e.bundle
	s := Entry{Name: e.name, Managers: o.managers(e.name), Remark: b.remark()}
	switch {
	case b.empty:
		s.Remark = "no caBundle"
	case len(b.certs) == 0 && s.Remark == "":
		s.Remark = "it has no certificate"
	}
	for _, cert := range b.certs {
		s.Bundle = append(s.Bundle, Certificate{Subject: cert.Subject.String(), ID: rotation.ID(cert), NotAfter: cert.NotAfter.UTC()})
	}
	return s
}

// Read reads the configurations once, which needs only the right to get them. The error
// names everything that could not be read; what does not exist is not Found.
func Read(ctx context.Context, client certs.Client, registrations []Registration) ([]Status, error) {
	w := NewWatcher(WatcherConfig{Client: client, Registrations: registrations})
	err := w.readOnce(ctx)
	return w.Status(), err
}

func (w *Watcher) readOnce(ctx context.Context) error {
	var problems []error
	for i, s := range w.snapshot() {
		found, err := getObject(ctx, w.cfg.Client, s.target)
		if err != nil {
			p := requestProblem(ctx, s.target, "get", err)
			w.setProblem(i, p)
			problems = append(problems, p.err)
			continue
		}
		w.update(i, found)
	}
	return errors.Join(problems...)
}

// getObject returns a target from the API server, nil if it does not exist.
func getObject(ctx context.Context, client certs.Client, t target) (*object, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	found, err := t.kind.Get(ctx, client.AdmissionregistrationV1().RESTClient(), t.name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return newObject(t.kind, found), nil
}
