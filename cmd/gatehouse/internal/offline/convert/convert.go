// Package convert translates the policies of other programs into Gatehouse's: Kyverno's policies of all kinds with their exceptions and
// tests, and Gatekeeper's constraint templates that are written in CEL.
//
// It reads documents and writes documents, and knows no file, cluster or clock. Nothing is left out silently: for each rule there is a
// Result, which says what became of it, in what that differs from the original, and which construct had no translation. Every policy that
// it returns compiles. A rule that could be translated in part only is returned if that is asked for, and then refuses more.
package convert

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/convert/jmespath"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/manifest"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
)

// Options say how to convert.
type Options struct {
	// Partial returns rules that could be translated in part only, if they refuse more without the rest.
	Partial bool
	// Actions are what a violation leads to, in place of what the policies say.
	Actions []admissionregistrationv1.ValidationAction
	// ReadFile reads the files that a kyverno-test.yaml names. Without it, tests are not converted.
	ReadFile ReadFile
	// Kinds are those of the cluster, which go before those of CustomResourceDefinitions among the documents.
	Kinds map[schema.GroupVersionKind]request.Resource
}

// Status is what became of a rule.
type Status string

// The values of Status.
const (
	Converted Status = "Converted"
	// Different is converted with named differences.
	Different Status = "Different"
	Not       Status = "NotConverted"
	// Repeated is equal to another document, which counts.
	Repeated Status = "Repeated"
)

// Problem is a construct that has no translation.
type Problem struct {
	Construct string `json:"construct"`
	File      string `json:"file"`
	Line      int    `json:"line"`
	// Instead is what to write in its place.
	Instead string `json:"instead,omitempty"`
}

// Result is what became of a rule, or of a document without rules.
type Result struct {
	// Policy is the kind and name of the document, and Rule the rule in it, "" for all of it.
	Policy string `json:"policy"`
	Rule   string `json:"rule,omitempty"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	Status Status `json:"status"`
	// SameAs is the place of the document that a repeated one is equal to.
	SameAs string `json:"sameAs,omitempty"`
	// Outputs are the kinds and names of the documents that the rule became.
	Outputs     []string  `json:"outputs,omitempty"`
	Differences []string  `json:"differences,omitempty"`
	Problems    []Problem `json:"problems,omitempty"`
}

// Document is a document of the result.
type Document struct {
	Kind, Name string
	// From is the document that it was made of, "ClusterPolicy/x", and File its file.
	From, File string
	// Text is YAML.
	Text []byte
}

// Output is the result of a conversion.
type Output struct {
	Documents []Document
	Results   []Result
	// Others is the number of documents that are no policies.
	Others int
}

// Convert converts all objects.
func Convert(objects []*manifest.Object, options Options) *Output {
	c := converter{
		options: options, out: &Output{}, sources: map[*manifest.Object]*source{}, first: map[string]*source{}, named: map[string][]*source{},
		written: map[string]*manifest.Object{}, numbers: map[string]int{},
	}
	c.readKinds(objects)
	for _, o := range objects {
		c.object(o)
	}
	c.exceptions()
	c.constraints()
	if options.ReadFile != nil {
		c.tests(objects, options.ReadFile)
	}
	return c.out
}

// converter converts documents.
type converter struct {
	options Options
	out     *Output
	// sources are the documents of policies and templates, first by what they say, and named the policies by their names.
	sources map[*manifest.Object]*source
	first   map[string]*source
	named   map[string][]*source
	// written is of what a document of a kind and name was made, and numbers the last ones that were added to names.
	written map[string]*manifest.Object
	numbers map[string]int
	// resources are those of kinds, which are sorted.
	resources *request.Resources
	kinds     []schema.GroupVersionKind
	// later are exceptions, and templates and constraints, which name others.
	later, templates, constraintObjects []*manifest.Object
}

// source is a document with those that are equal to it.
type source struct {
	*manifest.Object
	// files are those in which they are, and made is what its rules became.
	files []string
	made  []converted
}

// converted is what a rule became: a policy, of the part that it was translated to.
type converted struct {
	*part
	// of is the policy that has the rule.
	of *manifest.Object
	// kind and name are those of the policy that it became, and rules the names of its rules that the rule became.
	kind, name string
	rules      []string
	// namespace reports whether the policy needs the namespace of the object.
	namespace bool
}

// object converts a document by its kind.
func (c *converter) object(o *manifest.Object) {
	kind := o.GroupVersionKind()
	kyverno, isPolicy := strings.HasSuffix(kind.Group, "kyverno.io"), strings.HasSuffix(kind.Kind, "Policy")
	v := rawjson.Value(o.JSON())
	spec := v.Get("spec")
	switch {
	case IsTest(o):
	case kind.Group == "chainsaw.kyverno.io" || kind.Group == "cli.kyverno.io" || !kyverno && !strings.HasSuffix(kind.Group, ".gatekeeper.sh"):
		c.out.Others++
	case c.isRepeated(o):
	case parts(v) > mostParts:
		c.refuse(o, unsupported("", "split the document", "a document of more than %d values and alternatives", mostParts))
	case kyverno && isPolicy && v.Get("status").Len() > 0 && spec.Get("rules").Len()+spec.Get("validations").Len()+spec.Get("mutations").Len() == 0:
		c.refuse(o, unsupported("status", "leave it out", "what a test expects of a policy"))
	case kind.Group == "kyverno.io" && (kind.Kind == "ClusterPolicy" || kind.Kind == "Policy"):
		c.kyverno(o)
	case kyverno && kind.Kind == "PolicyException":
		c.later = append(c.later, o)
	case kind.Group == "policies.kyverno.io" && isPolicy:
		c.celPolicy(o)
	case kind.Group == "templates.gatekeeper.sh" && kind.Kind == "ConstraintTemplate":
		c.templates = append(c.templates, o)
	case kind.Group == constraintGroup:
		c.constraintObjects = append(c.constraintObjects, o)
	case kind.Group == "mutations.gatekeeper.sh":
		c.refuse(o, unsupported("kind", "write a MutatingAdmissionPolicy", "the kind %s", kind.Kind))
	case !kyverno && kind.Kind == "Suite":
		c.refuse(o, unsupported("kind", "write a Test for gatehouse test", "a test of Gatekeeper"))
	default:
		c.refuse(o, unsupported("kind", "keep the program that has it, or use a controller", "the kind %s of %s", kind.Kind, kind.Group))
	}
}

// isRepeated reports whether a document is equal to one before it, as far as it decides: comments, labels and most annotations may differ.
// Such a one is reported, and no more.
func (c *converter) isRepeated(o *manifest.Object) bool {
	v := rawjson.Value(o.JSON())
	what, _ := json.Marshal([]any{o.GroupVersionKind().GroupKind(), o.Namespace, o.Name, toJSON(json.RawMessage(cmp.Or(string(v.Get("spec")), "null"))), v.Get("metadata", "annotations", autogenControllers).Text()}) //nolint:errchkjson // it is JSON
	first := c.first[string(what)]
	if first == nil {
		first = &source{Object: o}
		if c.first[string(what)], c.sources[o] = first, first; strings.HasSuffix(o.Kind, "Policy") {
			c.named[o.Name] = append(c.named[o.Name], first)
		}
	} else {
		c.out.Results = append(c.out.Results, Result{Policy: title(o), File: o.File, Line: o.Line(), Status: Repeated, SameAs: placeOf(first.Object)})
	}
	first.files = append(first.files, o.File)
	return first.Object != o
}

// placeOf returns where a document is.
func placeOf(o *manifest.Object) string { return fmt.Sprintf("%s:%d", o.File, o.Line()) }

// nearness returns how much of its path a file has in common with another.
func nearness(file, other string) (n int) {
	file, other = file+"/", other+"/"
	for i := 0; i < min(len(file), len(other)) && file[i] == other[i]; i++ {
		if file[i] == '/' {
			n++
		}
	}
	return n
}

// nearest returns those of several documents that are nearest to files, or that are equal to one that is.
func nearest(all []*source, files ...string) (out []*source) {
	best := -1
	for _, s := range all {
		near := 0
		for _, file := range files {
			for _, of := range s.files {
				near = max(near, nearness(file, of))
			}
		}
		if near > best {
			best, out = near, nil
		}
		if near == best {
			out = append(out, s)
		}
	}
	return out
}

// made returns what the rules of a policy became, which is named NAME or NAMESPACE/NAME: of several that are meant, of those that are nearest
// to files, also if nothing came of these.
func (c *converter) made(policy string, isMeant func(*manifest.Object) bool, files ...string) (out []converted) {
	meant := slices.DeleteFunc(slices.Clone(c.named[path.Base(policy)]), func(s *source) bool { return !isMeant(s.Object) })
	for _, s := range nearest(meant, files...) {
		out = append(out, s.made...)
	}
	return out
}

// writtenKey returns the key of a document among those that were written. Policies of all kinds have names of their own.
func writtenKey(kind, namespace, name string) string {
	if strings.HasSuffix(kind, "Policy") {
		kind = "Policy"
	}
	return kind + "/" + namespace + "/" + name
}

// free returns a name that no other document has: if need be, with what distinguishes the directory of the file, or with a number. A note
// says so.
func (c *converter) free(kind, namespace, name string, o *manifest.Object, notes *[]string) string {
	other := c.written[writtenKey(kind, namespace, name)]
	if other == nil {
		return name
	}
	suffix, directories := "", strings.Split(path.Dir(other.File), "/")
	for of := range strings.SplitSeq(path.Dir(o.File), "/") {
		if !slices.Contains(directories, of) {
			suffix = cmp.Or(plainName(of), suffix)
		}
	}
	out := joinName(name, suffix)
	for stem := writtenKey(kind, namespace, out); c.written[writtenKey(kind, namespace, out)] != nil; {
		c.numbers[stem]++
		out = joinName(joinName(name, suffix), fmt.Sprint(1+c.numbers[stem]))
	}
	if other != o || kind == "Policy" { // an exception may become several
		*notes = append(*notes, fmt.Sprintf("it is named %q, since %s has another document of the name %q", out, placeOf(other), name))
	}
	return out
}

// Limits of what is translated, in values and in alternatives of patterns and expressions. The expression of a rule with more than
// mostPartsOfRule would exceed what the API server accepts, and the work for it grows faster than the rule.
const (
	mostParts       = 10_000
	mostPartsOfRule = 1_000
)

// parts returns the number of values in a JSON value, and of characters in its texts that separate alternatives or begin variables.
func parts(v rawjson.Value) int {
	n, text := 1, v.Text()
	for _, separator := range []string{"|", "&", "{{"} {
		n += strings.Count(text, separator)
	}
	for _, inner := range v.Members() {
		n += parts(inner)
	}
	for _, inner := range v.Elements() {
		n += parts(inner)
	}
	return n
}

// partial reports whether a part may be left out, so that the policy refuses more, and notes it.
func (c *converter) partial(err error, notes *[]string) bool {
	if c.options.Partial {
		*notes = union(*notes, "without "+err.Error()+": the policy applies to more requests")
	}
	return c.options.Partial
}

// title returns the kind and name of a document. Old tests have no kind, and their name beside it.
func title(o *manifest.Object) string {
	return cmp.Or(o.Kind, "Test") + "/" + cmp.Or(o.Name, rawjson.Value(o.JSON()).Get("name").Text(), "unnamed")
}

// publish writes the documents that an object becomes, which compile together with others, and adds its result. It reports whether the
// object could be converted.
func (c *converter) publish(o *manifest.Object, objects []*object, notes []string, err error, beside ...Document) bool {
	r := Result{Policy: title(o), File: o.File, Line: o.Line(), Differences: notes}
	c.complete(&r, o, objects, err, nil, beside...)
	c.out.Results = append(c.out.Results, r)
	return r.Status != Not
}

// complete completes the result of an object, or of the rule of it that is at a path, and writes the documents that it becomes: all of them
// or, if there is an error, none.
func (c *converter) complete(r *Result, o *manifest.Object, objects []*object, err error, at []string, beside ...Document) {
	if err == nil && len(objects) > 0 {
		r.Outputs, err = c.write(o, objects, &r.Differences, beside...)
	}
	switch {
	case err != nil:
		r.Status, r.Outputs, r.Differences, r.Problems = Not, nil, nil, []Problem{problemOf(o, err, at)}
	case len(r.Differences) > 0:
		r.Status = Different
	default:
		r.Status = Converted
	}
}

// refuse adds the result that a document could not be converted.
func (c *converter) refuse(o *manifest.Object, err error) { c.publish(o, nil, nil, err) }

// problemOf returns what an error says, with its place.
func problemOf(o *manifest.Object, err error, prefix []string) Problem {
	p := Problem{Construct: err.Error(), File: o.File, Line: o.Line(prefix...)}
	if of, ok := errors.AsType[*jmespath.UnsupportedError](err); ok {
		p.Instead, p.Line = of.Instead, o.Line(slices.Concat(prefix, of.Path)...)
	}
	return p
}

// policyConverter converts a ClusterPolicy or Policy.
type policyConverter struct {
	*converter
	source *manifest.Object
	policy *policy
	// autogen reports whether Kyverno applies rules about pods to pod templates.
	autogen bool
}

// kyverno converts a ClusterPolicy or Policy.
func (c *converter) kyverno(o *manifest.Object) {
	p := policy{Kind: o.Kind}
	meta, err := specOf(o, &p.Spec, nil, howKyvernoWorks()...)
	if err == nil && len(p.Spec.Rules) == 0 {
		err = unsupported("spec", "remove it", "a policy without rules")
	}
	if err != nil {
		c.refuse(o, err)
		return
	}
	var notes []string
	if p.Metadata = meta; o.Kind == "Policy" {
		inNamespace(&p.Metadata, &notes)
	}
	made, results, several := make([][]*part, len(p.Spec.Rules)), make([]Result, len(p.Spec.Rules)), -1
	p.Rules = make([]rule, len(p.Spec.Rules))
	failed := make([]error, len(p.Spec.Rules))
	for i, raw := range p.Spec.Rules {
		_ = json.Unmarshal(raw, &p.Rules[i]) // what can be read of a rule counts for the others
		failed[i] = decodeStrictly(raw, "", &p.Rules[i])
	}
	pc := &policyConverter{converter: c, source: o, policy: &p}
	pc.autogen = pc.hasAutogen()
	for i := range p.Rules {
		rc := &ruleConverter{policyConverter: pc, part: &part{rule: p.Rules[i].Name, index: i}, rule: &p.Rules[i], notes: slices.Clone(notes)}
		at := []string{"spec", "rules", fmt.Sprint(i)}
		results[i] = Result{Policy: title(o), Rule: rc.rule.Name, File: o.File, Line: o.Line(at...)}
		if err = failed[i]; err == nil {
			if made[i], err = rc.convert(); err == nil {
				several++
			}
		}
		results[i].Differences = rc.notes
		c.complete(&results[i], o, nil, err, at)
	}
	for i := range results {
		if results[i].Status != Not {
			pc.emit(made[i], several > 0, &results[i], i)
		}
	}
	c.out.Results = append(c.out.Results, results...)
}

// convert translates a rule: to a part of a policy, or to several that mutate.
func (c *ruleConverter) convert() ([]*part, error) {
	r := c.rule
	raw, err := json.Marshal(r)
	switch {
	case err != nil || parts(raw) > mostPartsOfRule:
		return nil, unsupported("", "split the rule", "a rule of more than %d values and alternatives", mostPartsOfRule)
	case c.policy.Spec.Admission != nil && !*c.policy.Spec.Admission:
		return nil, unsupported("", "audit what exists with gatehouse audit", "a policy that is not about requests (admission: false)")
	case c.policy.Spec.ApplyRules == "One" && c.index > 0 && !c.partial(errors.New("applyRules: One"), &c.notes):
		return nil, unsupported("", "exclude in each rule what the others are about", "a rule that is applied only if none before it is (applyRules: One)")
	case r.Generate != nil:
		return nil, unsupported("generate", "use a controller that creates the objects", "a rule that generates objects")
	case r.VerifyImages != nil:
		return nil, unsupported("verifyImages", "keep it in a program that verifies signatures", "the verification of image signatures")
	case r.Mutate != nil:
		return c.mutate()
	case r.Validate != nil:
		made, err := c.validate()
		return []*part{made}, err
	default:
		return nil, unsupported("", "remove it", "a rule that does nothing")
	}
}

const autogenControllers = "pod-policies.kyverno.io/autogen-controllers"

// hasAutogen reports whether Kyverno makes rules about pod templates of rules about pods.
func (c *policyConverter) hasAutogen() bool {
	if controllers, ok := c.policy.Metadata.Annotations[autogenControllers]; ok && strings.TrimSpace(controllers) == "none" {
		return false
	}
	forbids := func(f *filter) bool {
		r := &f.Resources
		pod := slices.ContainsFunc(r.Kinds, func(name string) bool { _, _, kind, _ := splitKind(name); return kind == "Pod" })
		return r.Name != "" || len(r.Names) > 0 || r.Selector != nil || r.Annotations != nil || len(r.Kinds) > 1 && pod
	}
	for i := range c.policy.Rules {
		r := &c.policy.Rules[i]
		blocks, _, _ := r.Match.all("")
		if r.Exclude != nil {
			excluded, _, _ := r.Exclude.all("")
			blocks = append(blocks, excluded...)
		}
		patches := r.Mutate != nil && (r.Mutate.PatchesJSON6902 != "" || slices.ContainsFunc(r.Mutate.ForEach, func(f forEachMutate) bool { return f.PatchesJSON6902 != "" }))
		if r.Generate != nil || patches || slices.ContainsFunc(blocks, forbids) {
			return false
		}
	}
	return true
}

// keptMeta returns the metadata of a document that is made of another one, with those labels and annotations that are about what it says.
func keptMeta(name string, of metav1.ObjectMeta) metav1.ObjectMeta {
	out := metav1.ObjectMeta{Name: name, Annotations: maps.Clone(of.Annotations), Labels: maps.Clone(of.Labels)}
	maps.DeleteFunc(out.Annotations, func(key, _ string) bool {
		field, ok := strings.CutPrefix(key, "policies.kyverno.io/")
		return !ok || !slices.Contains([]string{"title", "category", "severity", "subject", "description"}, field)
	})
	maps.DeleteFunc(out.Labels, func(key, _ string) bool {
		return strings.Contains(key, "kyverno.io/") || strings.HasPrefix(key, "app.kubernetes.io/managed-by") || strings.HasPrefix(key, "helm.sh/")
	})
	return out
}

// union returns a list with more elements, of which those that it has already are left out.
func union[T comparable](list []T, more ...T) []T {
	for _, one := range more {
		if !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	return list
}

// sortedKeys returns the keys of a map in their order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
