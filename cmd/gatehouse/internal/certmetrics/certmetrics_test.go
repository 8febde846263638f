package certmetrics_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gatehouse-dev/gatehouse/certs"
	"github.com/gatehouse-dev/gatehouse/certs/cabundle"
	"github.com/gatehouse-dev/gatehouse/certs/source"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/certmetrics"
)

func newMetrics() (*prometheus.Registry, *certmetrics.Metrics) {
	registry := prometheus.NewRegistry()
	return registry, certmetrics.New(registry, []string{"untrusted", "client-certificate", "protocol", "abandoned", "other"})
}

// shows compares metrics with what they should be, without their help.
func shows(t *testing.T, registry *prometheus.Registry, want string, names ...string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	help := ""
	for _, f := range families {
		for _, name := range names {
			if f.GetName() == name {
				help += "# HELP " + name + " " + f.GetHelp() + "\n# TYPE " + name + " " + strings.ToLower(f.GetType().String()) + "\n"
			}
		}
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(help+want), names...); err != nil {
		t.Error(err)
	}
}

// TestCertificateEvents shows when what is in use ends, and counts from zero on. An
// Event that says nothing of an end leaves the end that is known, and what was
// published once is not what is in use.
func TestCertificateEvents(t *testing.T) {
	t.Parallel()
	registry, observe := newMetrics()
	names := []string{
		"gatehouse_certificate_not_after_timestamp_seconds", "gatehouse_ca_bundle_overwritten_total", "gatehouse_ca_bundle_published_total",
		"gatehouse_ca_bundle_publish_failures_total", "gatehouse_ca_recovered_total",
	}
	stats := cabundle.Stats{}
	observe.Publisher(func() cabundle.Stats { return stats })
	shows(t, registry, `gatehouse_ca_bundle_overwritten_total 0
gatehouse_ca_bundle_publish_failures_total 0
gatehouse_ca_bundle_published_total 0
gatehouse_ca_recovered_total 0
`, names...)
	failed := errors.New("failed")
	for _, e := range []certs.Event{
		{Subject: certs.ServingCertificate, NotAfter: time.Unix(300, 0)},
		{Subject: certs.SelfSignedCA, NotAfter: time.Unix(900, 0), Reason: certs.ReasonRotation, Message: "a new CA"},
		{Subject: certs.SelfSignedCA, Reason: certs.ReasonStoreFailed, Err: failed},
		{Subject: certs.SelfSignedCA, NotAfter: time.Unix(900, 0), Reason: certs.ReasonRecovered, Message: "written again"},
		{Subject: certs.SelfSignedCA, NotAfter: time.Unix(900, 0), Reason: certs.ReasonRecovered, Message: "written again"},
		{Subject: certs.ServingCertificate, Reason: certs.ReasonExpiring, Err: failed, NotAfter: time.Unix(400, 0)},
		{Subject: cabundle.Subject, NotAfter: time.Unix(800, 0), Reason: certs.ReasonPublished, Message: "written"},
		{Subject: certs.ClientCA, NotAfter: time.Unix(600, 0)},
	} {
		observe.Certificate(e)
	}
	stats = cabundle.Stats{Published: 1, Overwritten: 3, Failed: 2}
	shows(t, registry, `gatehouse_ca_bundle_overwritten_total 3
gatehouse_ca_bundle_publish_failures_total 2
gatehouse_ca_bundle_published_total 1
gatehouse_ca_recovered_total 2
gatehouse_certificate_not_after_timestamp_seconds{subject="client CA"} 600
gatehouse_certificate_not_after_timestamp_seconds{subject="self-signed CA"} 900
gatehouse_certificate_not_after_timestamp_seconds{subject="serving certificate"} 400
`, names...)
}

// TestRenewalRefused tells a renewal that somebody has to mend from one that waits,
// and from what is about something else.
func TestRenewalRefused(t *testing.T) {
	t.Parallel()
	const name = "gatehouse_certificate_renewal_refused"
	registry, observe := newMetrics()
	shows(t, registry, name+" 0\n", name)
	failed := errors.New("certificate and key do not match")
	for _, step := range []struct {
		what  string
		event certs.Event
		want  string
	}{
		{"in use", certs.Event{Subject: certs.ServingCertificate}, "0"},
		{"another subject fails", certs.Event{Subject: certs.ClientCA, Err: failed}, "0"},
		{"refused", certs.Event{Subject: certs.ServingCertificate, Err: failed}, "1"},
		{"another subject is all right", certs.Event{Subject: certs.ClientCA}, "1"},
		{"waits", certs.Event{Subject: certs.ServingCertificate, Err: fmt.Errorf("tls.crt: %w: why", source.ErrWaiting)}, "0"},
		{"expired", certs.Event{Subject: certs.ServingCertificate, Reason: certs.ReasonExpiring, Err: failed}, "1"},
		{"in use with a remark", certs.Event{Subject: certs.ServingCertificate, Warnings: []string{"odd"}}, "0"},
	} {
		observe.Certificate(step.event)
		t.Log(step.what)
		shows(t, registry, name+" "+step.want+"\n", name)
	}
}

// TestBundles shows each registration, and survives one that is named twice: it is
// trusted only if both say so.
func TestBundles(t *testing.T) {
	t.Parallel()
	registry, observe := newMetrics()
	const mutating, validating = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
	var trust atomic.Pointer[[]cabundle.Verdict]
	trust.Store(new([]cabundle.Verdict))
	observe.Bundles(func() []cabundle.Verdict { return *trust.Load() })
	if n, err := testutil.GatherAndCount(registry, "gatehouse_ca_bundle_trusted"); err != nil || n != 0 {
		t.Errorf("%d series without a registration (%v)", n, err)
	}
	trust.Store(&[]cabundle.Verdict{
		{Kind: mutating, Name: "gatehouse", Trusted: true},
		{Kind: validating, Name: "gatehouse"},
		{Kind: validating, Name: "twice"},
		{Kind: validating, Name: "twice", Trusted: true},
		{Kind: mutating, Name: "twice", Trusted: true},
		{Kind: mutating, Name: "twice", Trusted: true},
	})
	shows(t, registry, `gatehouse_ca_bundle_trusted{kind="MutatingWebhookConfiguration",name="gatehouse"} 1
gatehouse_ca_bundle_trusted{kind="MutatingWebhookConfiguration",name="twice"} 1
gatehouse_ca_bundle_trusted{kind="ValidatingWebhookConfiguration",name="gatehouse"} 0
gatehouse_ca_bundle_trusted{kind="ValidatingWebhookConfiguration",name="twice"} 0
`, "gatehouse_ca_bundle_trusted")
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v %v", problems, err)
	}
}
