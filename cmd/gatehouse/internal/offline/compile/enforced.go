package compile

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/manifest"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cluster/install"
	"github.com/gatehouse-dev/gatehouse/internal/shell"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

// Found is a compiled document where it was found: in a cluster, or in a directory. It is comparable.
type Found struct {
	// From is the kind and name of the source, and Document those of the document.
	From, Document string
	// Expires is when the first of the exceptions in it ends, in seconds since 1970, 0 for never.
	Expires int64

	sum [sha256.Size]byte
	// static is true for a policy, or a binding of one, that is named as in a file for API servers (Output.Static).
	static bool
}

// Find returns what is compared of an object, and false if it is not a compiled document.
func Find(object metav1.Object) (f Found, is bool) {
	if f.From, is = config.CompiledFrom(object); !is {
		return f, false
	}
	name := func(name string) string {
		name, f.static = strings.CutSuffix(name, manifest.StaticConfigSuffix)
		return name
	}
	switch o := object.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		f.Document, f.sum = policyKind+"/"+name(o.Name), sumOf(validation.DefaultPolicySpec(&o.Spec))
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		f.Document = bindingKind + "/" + name(o.Name)
		spec := validation.DefaultBindingSpec(&o.Spec)
		spec.PolicyName = name(spec.PolicyName) // its own name says nothing of which policy it is for
		f.sum = sumOf(spec)
	default:
		return f, false
	}
	// What compiling gives has no exception that has ended: the annotation says only why the document differs.
	if at, err := time.Parse(time.RFC3339, object.GetAnnotations()[ExpiresAnnotation]); err == nil {
		f.Expires = at.Unix()
	}
	return f, true
}

// HasEnded returns when an exception in the document has ended, and false if none has.
func (f *Found) HasEnded(now time.Time) (time.Time, bool) {
	at := time.Unix(f.Expires, 0).UTC()
	return at, f.Expires != 0 && !now.Before(at)
}

// sumOf identifies a spec with its defaults. Null and empty lists are the same, as in the API server.
func sumOf(spec any) [sha256.Size]byte {
	text, _ := json.Marshal(spec) //nolint:errchkjson // it has no error for types of the API
	return sha256.Sum256(text)
}

// Enforcement is what the API server enforces itself of a source, by compiled documents. It is comparable.
type Enforcement struct {
	// Kind and Name are those of the source.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// State is a reason of the condition Native.
	State string `json:"state"`
	// Text says for people what enforces it, and why the API server does not decide alone.
	Text string `json:"text"`
}

// IsWhole reports whether the API server decides all that the source says, as Gatehouse does. Of nil it is false.
func (e *Enforcement) IsWhole() bool { return e != nil && e.State == v1alpha1.EnforcedReason }

// Of returns that of a source, nil if there is none. The list is one of Compare.
func Of(list []Enforcement, kind, name string) *Enforcement {
	at, is := slices.BinarySearchFunc(list, kind+"/"+name, func(e Enforcement, source string) int { return strings.Compare(e.Kind+"/"+e.Name, source) })
	if !is {
		return nil
	}
	return &list[at]
}

// Wanted is what compiling gives, in little memory.
type Wanted struct {
	// Until is when an exception or a baseline ends, so that compiling gives something else, zero for never.
	Until time.Time

	sources map[string]*wanted
	// again is the command that compiles for these namespaces.
	again string
}

type wanted struct {
	documents map[string][sha256.Size]byte
	// differs is what Gatehouse decides otherwise or alone.
	differs []string
}

// Want compiles an active configuration for Compare. Excluded are the namespaces that are never sent to Gatehouse. It is for the newest version
// of Kubernetes, because the API server has accepted what is found.
func Want(c *config.Config, excluded []string, now time.Time) (*Wanted, error) {
	const newest = "1.37"
	names := slices.Compact(slices.Sorted(slices.Values(excluded)))
	out, err := Compile(c, Options{Kubernetes: newest, Now: now, ExcludeNamespaces: names})
	if err != nil {
		return nil, err
	}
	w := &Wanted{Until: nextEnd(&c.Policy, now), sources: map[string]*wanted{}, again: "gatehouse compile"}
	if !slices.Equal(names, slices.Sorted(slices.Values(install.ExcludedNamespaces()))) {
		w.again += " --exclude-namespace " + shell.Quote(strings.Join(names, ","))
	}
	of := func(source string) *wanted {
		if w.sources[source] == nil {
			w.sources[source] = &wanted{documents: map[string][sha256.Size]byte{}}
		}
		return w.sources[source]
	}
	for _, item := range out.Items {
		if s := of(item.Kind + "/" + item.Name); item.Status != Native {
			s.differs = append(s.differs, item.Rule+": "+strings.Join(item.Reasons, "; "))
		}
	}
	for i := range out.Documents {
		if f, is := Find(out.Documents[i].Object()); is {
			of(f.From).documents[f.Document] = f.sum
		}
	}
	return w, nil
}

// EnforcedBy returns what objects enforce of a configuration, and those of them that are compiled documents. Without any, it does not compile.
func EnforcedBy(c *config.Config, excluded []string, objects []metav1.Object, now time.Time) (list []Enforcement, made []Found, err error) {
	for _, object := range objects {
		if one, is := Find(object); is {
			made = append(made, one)
		}
	}
	if len(made) == 0 {
		return nil, nil, nil
	}
	wanted, err := Want(c, excluded, now)
	if err != nil {
		return nil, made, err
	}
	return wanted.Compare(made, now), made, nil
}

// nextEnd returns when the next exception or baseline ends, zero for never.
func nextEnd(spec *policy.Spec, now time.Time) (next time.Time) {
	add := func(at time.Time) {
		if at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for i := range spec.Exceptions {
		if at := spec.Exceptions[i].Spec.ExpiresAt; at != nil {
			add(at.Time)
		}
	}
	for i := range spec.Baselines {
		add(spec.Baselines[i].Spec.ExpiresAt.Time)
	}
	return next
}

// Compare returns what the documents that were found enforce, by the sources of the configuration in the order of their names. A source of
// which none was found is not among them. It proves that a document is there as compiling gives it, whatever its annotations say.
func (w *Wanted) Compare(found []Found, now time.Time) []Enforcement {
	bySource := map[string][]Found{}
	for _, f := range found {
		if w.sources[f.From] != nil {
			bySource[f.From] = append(bySource[f.From], f)
		}
	}
	var out []Enforcement
	for _, source := range sortedKeys(bySource) {
		out = append(out, w.sources[source].compare(source, bySource[source], w.again, now))
	}
	return out
}

func (w *wanted) compare(source string, found []Found, again string, now time.Time) Enforcement {
	slices.SortFunc(found, func(a, b Found) int { return strings.Compare(a.Document, b.Document) })
	var names, ended, other, gone, missing []string
	var end time.Time
	there := map[string]bool{}
	for _, f := range found {
		there[f.Document] = true
		if kind, name, _ := strings.Cut(f.Document, "/"); kind == policyKind {
			names = append(names, name)
		}
		sum, is := w.documents[f.Document]
		switch at, hasEnded := f.HasEnded(now); {
		case hasEnded:
			ended, end = append(ended, f.Document), at
		case !is:
			gone = append(gone, f.Document)
		case sum != f.sum, f.static != found[0].static: // a binding of p.static.k8s.io is not one of p
			other = append(other, f.Document)
		}
	}
	for _, document := range sortedKeys(w.documents) {
		if !there[document] {
			missing = append(missing, document)
		}
	}
	var wrong []string
	add := func(what string, documents []string) {
		if len(documents) > 0 {
			wrong = append(wrong, what+": "+short(documents))
		}
	}
	add("has an exception that ended at "+end.Format(time.RFC3339), ended)
	add("is not what gatehouse compile makes now", other)
	add("is missing", missing)
	add("is no longer made, and must be deleted", gone)
	e := Enforcement{State: v1alpha1.EnforcedReason, Text: "the API server itself enforces the policy, by " + short(names)}
	e.Kind, e.Name, _ = strings.Cut(source, "/")
	switch {
	case len(wrong) > 0:
		e.State, e.Text = v1alpha1.OutOfDateReason, strings.Join(wrong, "; ")+" (hint: "+again+", and apply the result)"
		if len(ended) > 0 {
			e.State = v1alpha1.ExceptionEndedReason
		}
	case len(w.differs) > 0:
		e.State, e.Text = v1alpha1.PartlyEnforcedReason, e.Text+", but Gatehouse decides a part of it: "+short(w.differs)
	}
	return e
}

// short lists three at most.
func short(list []string) string {
	const most = 3
	text := strings.Join(list[:min(most, len(list))], ", ")
	if more := len(list) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Without returns a spec without the policies that the API server enforces wholly.
func Without(spec policy.Spec, of []Enforcement) policy.Spec {
	spec.Policies = slices.DeleteFunc(slices.Clone(spec.Policies), func(p policy.Policy) bool { return Of(of, policyKind, p.Name).IsWhole() })
	spec.AdmissionPolicies = slices.DeleteFunc(slices.Clone(spec.AdmissionPolicies), func(p policy.AdmissionPolicy) bool { return Of(of, "AdmissionPolicy", p.Name).IsWhole() })
	return spec
}
