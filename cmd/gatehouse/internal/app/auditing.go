package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/configuration"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/status"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/background"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/audit/openreports"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/review"
)

// AuditOptions are the flags of serve about the audit of existing objects.
type AuditOptions struct {
	// Every is the pause between two audits, 0 for none.
	Every time.Duration
	qps   float32
	// exclude are namespaces besides neverSent.
	exclude []string
}

const (
	minAuditEvery   = time.Minute
	defaultAuditQPS = 5
	// auditBytes is the memory of an audit: a page of objects, decoding, and the results that are kept.
	auditBytes = 32 << 20
)

// addFlags adds the flags to a command.
func (f *AuditOptions) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&f.Every, "audit-every", 0, "interval between audits of the objects that exist in the cluster, such as 1h, with --custom-resources; one replica audits, also after changes of policies, and writes reports of openreports.io; needs the rights that gatehouse manifests --audit prints (default: no audits)")
	flags.Float32Var(&f.qps, "audit-qps", defaultAuditQPS, "maximum requests of the audit to the API server, each second")
	flags.StringSliceVar(&f.exclude, "audit-exclude-namespace", nil, "more namespaces that are not audited: those from which the API server sends nothing to Gatehouse; repeatable")
}

// validate adds the problems of the flags.
func (f *AuditOptions) validate(p *problems, customResources bool) {
	if f.Every == 0 {
		p.needs(false, "--audit-every", "audit-qps", "audit-exclude-namespace")
		return
	}
	if !customResources {
		p.add("--audit-every needs --custom-resources, with which replicas elect the one that audits")
	}
	if f.Every < minAuditEvery {
		p.add("--audit-every %s: must be at least %s (hint: 1h, or 0 for no audits)", f.Every, minAuditEvery)
	}
	if !(f.qps > 0 && f.qps <= 1000) { // neither is NaN
		p.add("--audit-qps %g: must be above 0 and at most 1000 (hint: %d)", f.qps, defaultAuditQPS)
	}
	for _, name := range f.exclude {
		if len(validation.IsDNS1123Label(name)) > 0 {
			p.add("--audit-exclude-namespace %.100q: must be the name of a namespace", name)
		}
	}
}

// reviewLoad measures which part of the processors reviews take.
type reviewLoad struct {
	nanoseconds atomic.Int64
	// since is used by one goroutine.
	since time.Time
}

// observe counts a finished review.
func (l *reviewLoad) observe(o *review.Outcome) { l.nanoseconds.Add(int64(o.Took - o.Waited)) }

// last returns the part since the last call, from 0 to 1. What a decision waits for is counted too.
func (l *reviewLoad) last() float64 {
	now := time.Now()
	took, passed := l.nanoseconds.Swap(0), now.Sub(l.since)
	l.since = now
	return min(1, float64(took)/float64(max(passed, time.Millisecond))/float64(runtime.GOMAXPROCS(0)))
}

// addAudits adds what audits the cluster, and returns it for the status of policies and profiles: nil without --audit-every.
func (w *wiring) addAudits(changed func()) (status.Audits, error) {
	f := &w.Auditing
	if f.Every == 0 {
		return nil, nil //nolint:nilnil // nothing is audited
	}
	access := w.accessOf("audit")
	access.QPS, access.Burst = f.qps, max(1, int(2*f.qps))
	access.DisableCompression = true // it takes more of both processors than it saves
	objects, err := dynamic.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("cannot create a client for %s: %w", access.Host, err)
	}
	names, err := metadata.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("cannot create a client for %s: %w", access.Host, err)
	}
	namespace := w.ownNamespace()
	load := &reviewLoad{since: time.Now()}
	a := &auditing{access: access, current: w.current, exclude: slices.Concat(neverSent(namespace), f.exclude)}
	// Logged when serve starts with --audit-every.
	w.log.Info("audits enabled", "every", f.Every.String())
	audits := background.New(background.Config{
		Active: a.active, Every: f.Every,
		Reports: openreports.NewWriter(objects, names, namespace),
		Load:    load.last, Changed: changed, Log: w.log,
	})
	w.add(part{metrics: audits, lead: audits.Run, observe: load.observe, details: func() []string { return []string{audits.Details()} }})
	return audits, nil
}

// neverSent returns the namespaces whose objects the API server does not send to an install in a namespace.
func neverSent(namespace string) []string {
	return []string{metav1.NamespaceSystem, corev1.NamespaceNodeLease, namespace}
}

// auditing gives the active configuration to audits. Its methods are called by one goroutine.
type auditing struct {
	access  *rest.Config
	current *configuration.Active
	exclude []string

	// of is the configuration that fingerprint and policies were made of.
	of          *config.Config
	fingerprint string
	policies    []openreports.Policy
}

// active is background.Config.Active.
func (a *auditing) active() *background.Active {
	c, s := a.current.Config.Load(), a.current.Snapshot.Load()
	if c == nil || s == nil {
		return nil
	}
	if a.of != c {
		a.of, a.fingerprint, a.policies = c, fingerprint(c), policies(c)
	}
	return &background.Active{
		Fingerprint: a.fingerprint, Policies: a.policies,
		Audit: func(ctx context.Context, sink audit.Sink, pace func(context.Context, time.Duration) error) (*audit.Outcome, error) {
			return a.run(ctx, c, s, sink, pace)
		},
	}
}

func (a *auditing) run(ctx context.Context, c *config.Config, s *webhooks.Snapshot, sink audit.Sink, pace func(context.Context, time.Duration) error) (*audit.Outcome, error) {
	return audit.Run(ctx, audit.Options{Access: a.access, Config: c, Snapshot: s, Exclude: a.exclude, Pace: pace, KnowsNamespaces: true}, sink)
}

// fingerprint identifies what an audit depends on: not the access tokens, which change more often.
func fingerprint(c *config.Config) string {
	digest := sha256.New()
	out := json.NewEncoder(digest)
	add := func(value any) { _ = out.Encode(value) } //nolint:errchkjson // API types can be encoded
	for o := range c.Objects("SidecarProfile", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"AdmissionPolicy", "AdmissionPolicyBinding", "PolicyException", "PolicyBaseline") {
		add([]any{o.Kind, o.Object})
	}
	add(c.Policy.Configuration)
	return hex.EncodeToString(digest.Sum(nil))
}

// policies returns the names of all policies, and of profiles: a refused injection is a result of one.
func policies(c *config.Config) []openreports.Policy {
	var all []openreports.Policy
	for o := range c.Objects("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy", "AdmissionPolicy", "SidecarProfile") {
		all = append(all, openreports.Policy{Kind: o.Kind, Name: o.GetName()})
	}
	return all
}
