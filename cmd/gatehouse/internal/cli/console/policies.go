package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/console/web"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/admit"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/config/resolve"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
)

// The kinds that have pages, and what the kinds of their bindings end in.
const (
	admissionPolicyKind = "AdmissionPolicy"
	nativePolicyKind    = "ValidatingAdmissionPolicy"
	profileKind         = "SidecarProfile"
	exceptionKind       = "PolicyException"
	baselineKind        = "PolicyBaseline"
	bindingSuffix       = "Binding"
)

// addPolicies adds the page with all policies, and those of one policy or profile.
func (c *console) addPolicies() {
	c.web.Page("GET /policies", c.showPolicies)
	c.web.Page("GET /policies/{kind}/{name}", c.showPolicy)
}

// objectKey identifies an object that decides.
type objectKey struct{ Kind, Namespace, Name string }

// Value identifies the object in a URL.
func (k objectKey) Value() string { return k.Kind + "/" + k.Namespace + "/" + k.Name }

// object is a policy of any kind, a profile, a binding, an exception or a baseline, of a document or of the cluster.
type object struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		MatchConstraints  *admissionregistrationv1.MatchResources `json:"matchConstraints"`
		Match             map[string]any                          `json:"match"`
		PolicyName        string                                  `json:"policyName"`
		ValidationActions []string                                `json:"validationActions"`
		Injection         string                                  `json:"injection"`
		Policies          []v1alpha1.ExceptedPolicy               `json:"policies"`
		Rules             []v1alpha1.BaselineRule                 `json:"rules"`
		Reason            string                                  `json:"reason"`
		ExpiresAt         *metav1.Time                            `json:"expiresAt"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
	Kind   string `json:"-"`
	source string
	// typed is the object of a configuration, nil for one that is not active.
	typed metav1.Object
}

// newObject returns what the pages show of an object in another form.
func newObject(kind string, from any) (*object, error) {
	out := &object{}
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	out.Kind = kind
	return out, err
}

func (o *object) key() objectKey { return objectKey{o.Kind, o.Namespace, o.Name} }

// title returns the name of the object in diagnostics.
func (o *object) title() string {
	if o.Namespace != "" {
		return o.Kind + "/" + o.Namespace + "/" + o.Name
	}
	return o.Kind + "/" + o.Name
}

// matches says on one line what a policy or profile matches, without the selectors of a policy.
func (o *object) matches() string {
	if o.Kind == profileKind {
		if len(o.Spec.Match) == 0 {
			return "all pods"
		}
		return strings.Join(strings.Fields(asYAML(o.Spec.Match)), " ")
	}
	if o.Spec.MatchConstraints == nil {
		return "nothing"
	}
	var parts []string
	for i := range o.Spec.MatchConstraints.ResourceRules {
		r := &o.Spec.MatchConstraints.ResourceRules[i]
		var operations []string
		for _, operation := range r.Operations {
			operations = append(operations, string(operation))
		}
		var resources []string
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				resources = append(resources, strings.TrimSuffix(resource+"."+group, "."))
			}
		}
		parts = append(parts, strings.Join(operations, ", ")+" of "+strings.Join(resources, ", "))
	}
	return strings.Join(parts, "; ")
}

// actions says when a profile is injected, or what a policy does, with its bindings.
func (o *object) actions(bindings []*object) string {
	if o.Kind == profileKind {
		return cmp.Or(o.Spec.Injection, "OptIn")
	}
	names := map[string]bool{}
	for _, of := range append(bindings, o) {
		for _, action := range of.Spec.ValidationActions {
			names[action] = true
		}
	}
	if o.Kind == admit.MutationKind && len(bindings) > 0 {
		names["Mutate"] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), ", ")
}

// loaded is the configuration that the console shows.
type loaded struct {
	*resolve.CommandConfig

	// policies have the profiles too, by name, and exceptions the baselines.
	policies, bindings, exceptions []*object
	// unread says what of it is not known, as for lack of a right, or because a flag leaves it out.
	unread []error
}

// configuration returns what decides: the directory, what is active in the cluster, or both. Without either, as with a recording
// alone, it is nil.
func (c *console) configuration(ctx context.Context) (*loaded, error) {
	if c.isOffline() {
		if c.config == "" {
			return nil, nil //nolint:nilnil // there is none
		}
		documents, snapshot, found := config.CompileDir(c.config)
		if snapshot == nil {
			return nil, config.InvalidError(c.config, found)
		}
		return newLoaded(&resolve.CommandConfig{Config: documents, Snapshot: snapshot, Found: found}, nil)
	}
	source, err := c.Open(ctx, c.config)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	all, err := source.Load(ctx, nil)
	if err != nil {
		return nil, err
	}
	return newLoaded(all, append(source.Unread(all), source.Unconsidered()...))
}

func newLoaded(of *resolve.CommandConfig, unread []error) (*loaded, error) {
	l := &loaded{CommandConfig: of, unread: unread}
	for typed := range of.Config.Objects(
		profileKind, admit.MutationKind, admit.MutationKind+bindingSuffix, nativePolicyKind, nativePolicyKind+bindingSuffix,
		admissionPolicyKind, admissionPolicyKind+bindingSuffix, exceptionKind, baselineKind,
	) {
		one, err := newObject(typed.Kind, typed.Object)
		if err != nil {
			return nil, err
		}
		one.source, one.typed = typed.Source, typed.Object
		switch {
		case one.isException():
			l.exceptions = append(l.exceptions, one)
		case strings.HasSuffix(one.Kind, bindingSuffix):
			l.bindings = append(l.bindings, one)
		default:
			l.policies = append(l.policies, one)
		}
	}
	slices.SortStableFunc(l.policies, func(a, b *object) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Kind, b.Kind))
	})
	return l, nil
}

// bindingsOf returns the bindings of a policy.
func (l *loaded) bindingsOf(p *object) []*object {
	return slices.DeleteFunc(slices.Clone(l.bindings), func(b *object) bool { return b.Kind != p.Kind+bindingSuffix || b.Spec.PolicyName != p.Name })
}

// isExceptable reports whether an exception can be about a policy: not about a profile, or what changes objects.
func (o *object) isExceptable() bool {
	return o.Kind == admissionPolicyKind || o.Kind == nativePolicyKind
}

// isException reports whether an object is an exception or a baseline.
func (o *object) isException() bool { return o.Kind == exceptionKind || o.Kind == baselineKind }

// exceptionsOf returns the exceptions and baselines that name a policy.
func exceptionsOf(p *object, exceptions []*object) []*object {
	return slices.DeleteFunc(slices.Clone(exceptions), func(e *object) bool {
		return !p.isExceptable() || !slices.ContainsFunc(e.Spec.Policies, func(of v1alpha1.ExceptedPolicy) bool {
			return of.Name == p.Name && (of.Kind == "" || of.Kind == p.Kind)
		}) && !slices.ContainsFunc(e.Spec.Rules, func(of v1alpha1.BaselineRule) bool { return of.Policy == p.Name && of.Kind == p.Kind })
	})
}

// asked returns the configuration without the policies that the API server evaluates itself: webhooks answer without them.
func (l *loaded) asked() *config.Config {
	out := *l.Config
	out.Policy.Policies = slices.DeleteFunc(slices.Clone(out.Policy.Policies), func(p policy.Policy) bool { return isFromCluster(p.Source) })
	out.Policy.Bindings = slices.DeleteFunc(slices.Clone(out.Policy.Bindings), func(b policy.Binding) bool { return isFromCluster(b.Source) })
	out.Mutation.Policies = slices.DeleteFunc(slices.Clone(out.Mutation.Policies), func(p mutation.Policy) bool { return isFromCluster(p.Source) })
	out.Mutation.Bindings = slices.DeleteFunc(slices.Clone(out.Mutation.Bindings), func(b mutation.Binding) bool { return isFromCluster(b.Source) })
	return &out
}

// isFromCluster reports whether an object is one of the cluster.
func isFromCluster(source string) bool { return source == config.ClusterSource }

// needConfiguration returns what decides with the status of the objects, or an error if it is not known.
func (c *console) needConfiguration(ctx context.Context) (*loaded, *states, error) {
	l, err := c.configuration(ctx)
	if err == nil && l == nil {
		err = errNoConfiguration()
	}
	if err != nil {
		return nil, nil, err
	}
	s := &states{loaded: l, findings: map[string]diagnostic.List{}}
	for _, d := range l.Found {
		s.findings[d.Object] = append(s.findings[d.Object], d)
	}
	if !c.isOffline() {
		s.statuses, s.errs = c.statuses(ctx)
	}
	// Exceptions of the cluster that are not active, because they have errors.
	for _, o := range s.statuses {
		if o.isException() && s.findings[o.title()].Err() != nil && !slices.ContainsFunc(l.exceptions, func(e *object) bool { return e.key() == o.key() }) {
			o.source = config.ClusterSource
			l.exceptions = append(l.exceptions, o)
		}
	}
	return l, s, nil
}

// errNoConfiguration is the error of a page that needs a configuration.
func errNoConfiguration() error {
	return web.NotFound("there is no configuration (hint: gatehouse console --config DIR, or a cluster with --context NAME)")
}

// state is the status of a policy, profile or exception.
type state struct {
	// Class is "good", "notice" or "bad", and Text says it in few words.
	Class, Text string
	// Conditions are those of a custom resource, and Findings what is wrong with the document.
	Conditions []metav1.Condition
	Findings   diagnostic.List
}

// states are the status of all objects of a configuration.
type states struct {
	loaded   *loaded
	statuses map[objectKey]*object
	findings map[string]diagnostic.List
	// errs say what could not be read.
	errs []error
}

// of returns the status of an object.
func (s *states) of(o *object) state {
	out := state{Findings: s.findings[o.title()]}
	if o.Namespace != "" {
		out.Findings = slices.Concat(out.Findings, s.findings[o.Kind+"/"+o.Name])
	}
	if found := s.statuses[o.key()]; found != nil && isFromCluster(o.source) {
		out.Conditions = found.Status.Conditions
	}
	class, problem := worst(out.Conditions)
	switch {
	case slices.Contains(s.loaded.LeftOut, o.title()), out.Findings.Err() != nil:
		out.Class, out.Text = "bad", "has errors"
	case !isFromCluster(o.source) && len(out.Findings) > 0:
		out.Class, out.Text = "notice", diagnostic.Count(len(out.Findings), "warning")
	case !isFromCluster(o.source):
		out.Class, out.Text = "good", "valid"
	case o.Kind == nativePolicyKind, o.Kind == admit.MutationKind:
		out.Text = "the API server evaluates it"
	case problem != nil:
		out.Class, out.Text = class, problem.Type+" "+string(problem.Status)+": "+problem.Reason
	case meta.IsStatusConditionTrue(out.Conditions, v1alpha1.ReadyCondition):
		out.Class, out.Text = "good", "ready"
	case s.statuses[o.key()] == nil && len(s.errs) > 0:
		out.Text = "not known"
	default:
		out.Text = "no status"
	}
	return out
}

// worst returns the condition that says most about what is wrong, nil for none, and its class.
func worst(conditions []metav1.Condition) (class string, worst *metav1.Condition) {
	for _, of := range []struct {
		kind   string
		status metav1.ConditionStatus
		class  string
	}{
		{v1alpha1.CompiledCondition, metav1.ConditionFalse, "bad"},
		{v1alpha1.ReadyCondition, metav1.ConditionFalse, "bad"},
		{v1alpha1.DegradedCondition, metav1.ConditionTrue, "notice"},
	} {
		if c := meta.FindStatusCondition(conditions, of.kind); c != nil && c.Status == of.status {
			return of.class, c
		}
	}
	return "", nil
}

// policyList is what the page "policies" shows.
type policyList struct {
	Rows           []policyRow
	Pages          pager
	Exceptions     []exceptionRow
	ExceptionPages pager
	// Notes say what could not be read.
	Notes []error
	// Search is the text that names must contain.
	Search string
}

// policyRow is a policy or a profile.
type policyRow struct {
	Kind, Name, URL, Matches, Actions string
	State                             state
	// Exceptions is their number, of a kind that may have any.
	Exceptions   int
	IsExceptable bool
}

// exceptionRow is an exception or a baseline.
type exceptionRow struct {
	Kind, Namespace, Name string
	// Policies are their names, with the rules, and for a baseline with the numbers of violations that are left.
	Policies []string
	Reason   string
	Expiry   expiry
	State    state
	Defined  string
}

// showPolicies shows all policies, profiles, exceptions and baselines.
func (c *console) showPolicies(r *http.Request) (*web.View, error) {
	l, states, err := c.needConfiguration(r.Context())
	if err != nil {
		return nil, err
	}
	data := &policyList{Notes: slices.Concat(l.unread, states.errs), Search: r.URL.Query().Get("q")}
	var rows []policyRow
	for _, p := range l.policies {
		if strings.Contains(p.Name, data.Search) {
			at := "/policies/" + url.PathEscape(p.Kind) + "/" + url.PathEscape(p.Name)
			rows = append(rows, policyRow{p.Kind, p.Name, at, p.matches(), p.actions(l.bindingsOf(p)), states.of(p), len(exceptionsOf(p, l.exceptions)), p.isExceptable()})
		}
	}
	data.Rows, data.Pages = paginate(r, "page", rows)
	data.Exceptions, data.ExceptionPages = paginate(r, "exceptions", c.exceptionRows(states, l.exceptions))
	view := &web.View{Title: "Policies and profiles", Template: "policies", Data: data}
	if c.config != "" {
		view.Command = []string{"lint", "--config", c.config}
	}
	return view, nil
}

// exceptionRows returns a row for each exception and baseline: what ends first comes first, and what does not end comes last.
func (c *console) exceptionRows(states *states, exceptions []*object) []exceptionRow {
	rows := make([]exceptionRow, len(exceptions))
	for i, e := range exceptions {
		rows[i] = exceptionRow{
			Kind: e.Kind, Namespace: e.Namespace, Name: e.Name, Reason: e.Spec.Reason, Expiry: newExpiry(e.Spec.ExpiresAt, c.now()), State: states.of(e), Defined: c.definedAt(e),
		}
		for _, of := range e.Spec.Policies {
			rows[i].Policies = append(rows[i].Policies, strings.Join(append([]string{of.Name}, of.Rules...), " "))
		}
		for _, of := range e.Spec.Rules {
			rows[i].Policies = append(rows[i].Policies, fmt.Sprintf("%s %s: %s left", of.Policy, of.Rule, diagnostic.Count(len(of.Entries), "violation")))
		}
	}
	never := time.Unix(1<<40, 0)
	slices.SortStableFunc(rows, func(a, b exceptionRow) int {
		return cmp.Or(cmp.Or(a.Expiry.At, never).Compare(cmp.Or(b.Expiry.At, never)), strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
	})
	return rows
}

// policyPage is what the page "policy" shows of a policy or a profile.
type policyPage struct {
	Kind, Name, Defined, Actions string
	// Contact is whom to ask about denials.
	Contact string
	State   state
	// Document is the document as YAML.
	Document string
	// Bindings and Exceptions are those of a policy.
	Bindings   []bindingRow
	Exceptions []exceptionRow
	// IsProfile, IsExceptable and HasRecordings choose what is shown, and Audit is the command that finds what exists and breaks it.
	IsProfile, IsExceptable, HasRecordings bool
	Audit                                  []string
	Notes                                  []error
}

// bindingRow is a binding of a policy.
type bindingRow struct{ Name, Defined, Document string }

// contacts returns whom to ask about denials of a policy, with its bindings.
func contacts(all []*object) string {
	var names []string
	for _, o := range all {
		if name := o.Annotations[v1alpha1.ContactAnnotation]; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// showPolicy shows a policy or a profile.
func (c *console) showPolicy(r *http.Request) (*web.View, error) {
	l, states, err := c.needConfiguration(r.Context())
	if err != nil {
		return nil, err
	}
	kind, name := r.PathValue("kind"), r.PathValue("name")
	at := slices.IndexFunc(l.policies, func(p *object) bool { return p.Kind == kind && p.Name == name })
	if at < 0 {
		return nil, web.NotFound("there is no %s %q", cli.InertName(kind), cli.InertName(name))
	}
	p := l.policies[at]
	bindings := l.bindingsOf(p)
	data := &policyPage{
		Kind: kind, Name: name, Defined: c.definedAt(p), Actions: p.actions(bindings), Contact: contacts(append(bindings, p)), State: states.of(p), IsProfile: kind == profileKind,
		IsExceptable: p.isExceptable(),
		Exceptions:   c.exceptionRows(states, exceptionsOf(p, l.exceptions)), HasRecordings: len(c.recordingPaths()) > 0, Notes: slices.Concat(l.unread, states.errs),
	}
	for _, b := range bindings {
		data.Bindings = append(data.Bindings, bindingRow{b.Kind + " " + b.Name, c.definedAt(b), asYAML(b.typed)})
	}
	if data.Document, err = c.documentText(l, p.key()); err != nil {
		return nil, err
	}
	if !c.isOffline() {
		data.Audit = append([]string{"audit"}, c.sourceWords()...)
		for _, namespace := range c.namespaces {
			data.Audit = append(data.Audit, "-n", namespace)
		}
	}
	return &web.View{Title: kind + " " + name, Template: "policy", Data: data}, nil
}

// asYAML returns a part of an object for people.
func asYAML(value any) string {
	text, err := yaml.Marshal(value)
	if err != nil {
		return err.Error() // these types can be encoded
	}
	return string(text)
}

// definedAt says where an object is defined: in the cluster, or in a file.
func (c *console) definedAt(o *object) string {
	if isFromCluster(o.source) {
		return "the cluster"
	}
	name, _ := parseSource(o.source)
	return filepath.ToSlash(filepath.Join(c.config, filepath.FromSlash(name)))
}

// parseSource returns the file of a source, and the number of the document in it.
func parseSource(source string) (file string, number int) {
	name, rest, _ := strings.Cut(source, "#")
	rest, _, _ = strings.Cut(rest, "/") // an item of a list
	number = 1
	if n, err := strconv.Atoi(rest); err == nil && n > 0 {
		number = n
	}
	return name, number
}

// expiry is when an exception ends, for people.
type expiry struct {
	At time.Time
	// Text says how long that is, and Class is "bad" if it has ended and "notice" if it ends soon.
	Text, Class string
}

// soon is the time before its end at which an exception is marked.
const soon = 7 * 24 * time.Hour

func newExpiry(at *metav1.Time, now time.Time) expiry {
	if at == nil {
		return expiry{Text: "does not expire"}
	}
	left := at.Sub(now)
	e := expiry{At: at.Time, Text: "expires in " + diagnostic.Count(int(left.Hours()/24), "day")}
	switch {
	case left <= 0:
		e.Text, e.Class = "expired", "bad"
	case left < soon:
		e.Class = "notice"
	}
	return e
}
