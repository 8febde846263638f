package policy

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	apivalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/image"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/baseline"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/expression"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy/validation"
)

// An exception of containers covers a violation if the rule holds for the object without these containers. The rule is evaluated
// again, on the text of the object in which they are left out, and of the one before the update likewise. Whatever else happens,
// the violation stays: if no container matches, if the evaluation fails, if the rule is one that canSpare excludes.
//
// All exceptions that hold for the object count together: one of the platform about a sidecar and one of a team about its own image
// are about the same pod. So a rule is evaluated at most once more, however many exceptions there are, and once more again for those
// of which ForObjects does not know whether they hold.

const (
	// mostTogether is how many exceptions are taken together.
	mostTogether = 8
	// mostMatched is how many names and patterns are compared with containers for one request, which takes less than a tenth of a
	// second. An exception has a few, and so has a pod; both have authors that may be hostile. Then no further exception counts.
	mostMatched = 1 << 20
	// mostContainerPatterns is how many names, and how many images, an exception may have.
	mostContainerPatterns = 64
)

// containerMatch is which containers an exception is about. Both lists must match, but for an empty one.
type containerMatch struct {
	names  []string
	images []image.Pattern
}

func (m *containerMatch) matches(c *container) bool {
	return (len(m.names) == 0 || matchesName(m.names, c.name, false)) &&
		(len(m.images) == 0 || slices.ContainsFunc(m.images, func(p image.Pattern) bool { return p.Matches(c.image) }))
}

// containerPaths returns the paths of the lists of containers for a pod, or the template of one, at a path of the object.
func containerPaths(pod []string) [][]string {
	lists := baseline.ContainerLists()
	out := make([][]string, 0, len(lists))
	for _, list := range lists {
		out = append(out, slices.Concat(pod, []string{"spec", list}))
	}
	return out
}

// container is one of the request.
type container struct {
	name string
	// image is the zero value for a text that is no reference of an image.
	image image.Reference
}

// podContainers are the containers of a request: of the object and then of the one before, in the order of their lists.
type podContainers struct {
	all []container
	// without is the request without the containers that left says, nil if none was made.
	without *request
	left    []bool
}

// podContainers returns the containers of the request. There are none for an object that is neither a pod nor has the template of one.
func (r *request) podContainers() *podContainers {
	if r.containers != nil {
		return r.containers
	}
	r.containers = new(podContainers)
	pod, ok := r.podPath()
	if !ok {
		return r.containers
	}
	for _, from := range [...]*payload{&r.object, &r.oldObject} {
		object, err := from.json()
		if err != nil {
			continue // the review fails with it
		}
		for _, path := range containerPaths(pod) {
			for _, element := range object.Get(path...).Elements() {
				one := container{name: element.Get("name").Text()}
				one.image, _ = image.Parse(element.Get("image").Text())
				r.containers.all = append(r.containers.all, one)
			}
		}
	}
	return r.containers
}

// leaveOut adds the containers that the exception matches to those that are left out, and reports whether it matches any and whether
// one is new. It is false for more comparisons than are made for a request.
func (r *request) leaveOut(x *exception, left []bool) (matches, adds, ok bool) {
	all := r.podContainers().all
	v := r.decider
	if v.matched += len(all) * (len(x.containers.names) + len(x.containers.images)); v.matched > mostMatched {
		return false, false, false
	}
	for i := range all {
		if x.containers.matches(&all[i]) {
			matches, adds = true, adds || !left[i]
			left[i] = true
		}
	}
	return matches, adds, true
}

// without returns the request for the same objects without some of their containers.
func (r *request) without(left []bool) *request {
	known := r.podContainers()
	if known.without != nil && slices.Equal(known.left, left) {
		return known.without
	}
	pod, _ := r.podPath()
	req := r.AdmissionRequest
	next := 0
	for _, of := range [...]struct {
		from *payload
		to   *[]byte
	}{{&r.object, &req.Object.Raw}, {&r.oldObject, &req.OldObject.Raw}} {
		if object, err := of.from.json(); err == nil && len(object) > 0 {
			*of.to, next = withoutContainers(object, pod, left, next)
		}
	}
	out := newRequest(r.decider.detached(), admissionRequest(req))
	out.object.checked, out.oldObject.checked = true, true
	out.template, out.owner, out.ownerGenerated, out.isBefore = r.template, r.owner, r.ownerGenerated, r.isBefore
	known.without, known.left = out, slices.Clone(left)
	return out
}

// withoutContainers returns the text of an object without the containers that are left out, of which those of this object begin at
// next, and where they end. A list of which nothing remains is left out like the API server leaves it out, but for the one that
// every pod has.
func withoutContainers(object rawjson.Value, pod []string, left []bool, next int) ([]byte, int) {
	spec := object.Get(slices.Concat(pod, []string{"spec"})...)
	at, ok := rawjson.Offset(object, spec)
	if !ok || spec.Kind() != rawjson.Object {
		return object, next
	}
	lists := baseline.ContainerLists()
	var texts [len(lists)][]byte
	for k, list := range lists {
		var elements [][]byte
		gone := false
		for _, element := range spec.Get(list).Elements() {
			if gone = gone || left[next]; !left[next] {
				elements = append(elements, element)
			}
			next++
		}
		if gone {
			texts[k] = slices.Concat([]byte{'['}, bytes.Join(elements, []byte{','}), []byte{']'})
		}
	}
	var members [][]byte
	for name, member := range spec.Members() {
		k := slices.IndexFunc(lists[:], name.Is)
		switch {
		case k < 0 || texts[k] == nil:
			members = append(members, slices.Concat(name, []byte{':'}, member))
		case len(texts[k]) > len("[]") || k == 0:
			members = append(members, slices.Concat(name, []byte{':'}, texts[k]))
		}
	}
	return slices.Concat(object[:at], []byte{'{'}, bytes.Join(members, []byte{','}), []byte{'}'}, object[at+len(spec):]), next
}

// exceptionContainers checks and compiles which containers an exception is about.
func (c *compilation) exceptionContainers(d validation.Reporter, spec *v1alpha1.ExceptionContainers, out *exception) {
	if spec == nil {
		return
	}
	path := field.NewPath("spec", "match", "containers")
	out.containers = &containerMatch{names: slices.Clone(spec.Names)}
	if len(spec.Names) == 0 && len(spec.Images) == 0 {
		d.Errorf(path, "name containers or images, or leave it out for whole objects", "is empty")
	}
	for _, list := range [...]struct {
		name   string
		length int
	}{{"names", len(spec.Names)}, {"images", len(spec.Images)}} {
		if list.length > mostContainerPatterns {
			d.Errorf(path.Child(list.name), "write several exceptions", "has %d items, allowed are %d", list.length, mostContainerPatterns)
		}
	}
	checkStars(d, path.Child("names"), spec.Names)
	checkNames(d, path.Child("names"), spec.Names, "container", func(name string) bool {
		return len(apivalidation.IsDNS1123Label(strings.ReplaceAll(name, "*", "a"))) == 0
	})
	for i, text := range spec.Images {
		p, err := image.ParsePattern(text)
		if problem := new(image.PatternError); errors.As(err, &problem) {
			d.Errorf(path.Child("images").Index(i), problem.Hint, "%q %s", text, problem.Problem)
		}
		out.containers.images = append(out.containers.images, p)
	}
	c.checkContainerUse(d, path, out)
}

// podPaths returns where objects have a pod, or the template of one.
func (c *compilation) podPaths() [][]string {
	paths := [][]string{nil}
	for _, kind := range c.set.workloads.All() {
		paths = append(paths, kind.Template)
	}
	return paths
}

// checkContainerUse warns of an exception of containers from rules that none can cover.
func (c *compilation) checkContainerUse(d validation.Reporter, path *field.Path, x *exception) {
	useful := false
	var together []string
	for _, p := range c.set.policies {
		if !x.isAbout(p) {
			continue
		}
		useful = useful || p.broken != nil || p.podSecurity != nil
		for i := range p.validations {
			rule := &p.validations[i]
			if rule.Program == nil || !x.covers(p, rule.name) {
				continue
			}
			use, known := c.containerUses[rule.Program]
			if !known {
				use = containerUseOf(rule.Reads(), c.podPaths()...)
				c.containerUses[rule.Program] = use
			}
			useful = useful || use == canSpare
			if use == readsTogether {
				together = append(together, p.name+"/"+rule.name)
			}
		}
	}
	report := d.Warnf
	if !useful {
		report = d.NoEffect
	}
	for _, rule := range together {
		report(path, "ask each container by itself, as all and exists do, or exempt the object", "cannot exempt from %s, which reads containers together with other fields", rule)
	}
	if !useful && len(together) == 0 && len(c.rulesMatchedBy(x.policies)) > 0 {
		d.NoEffect(path, "leave it out to exempt the objects", "the rules that the exception is from read no containers, so it does nothing")
	}
}

// containerUse is what a rule reads of containers.
type containerUse uint8

const (
	// readsNone is a rule that reads no containers.
	readsNone containerUse = iota
	// canSpare is a rule that holds without containers only if it asks nothing that remains: it asks each container by itself, or
	// reads nothing else.
	canSpare
	// readsTogether is any other one, such as "size(containers) == 0 || !hostNetwork": a field outside of containers may pass
	// because there are fewer of them.
	readsTogether
)

// containerUseOf returns what a rule reads of the containers of pods, or of the templates of pods, at the paths.
func containerUseOf(reads *expression.Reads, pods ...[]string) containerUse {
	use := readsNone
	for _, pod := range pods {
		lists := containerPaths(pod)
		if !slices.ContainsFunc(lists, func(list []string) bool { return reads.Touches(list...) }) {
			continue
		}
		if !reads.CanSpare(lists...) {
			return readsTogether
		}
		use = canSpare
	}
	return use
}

// exceptContainers looks for exceptions of containers that cover a violation, among those that hold for the object.
func (f *finding) exceptContainers(t target, result *ruleResult, exceptions []*exception) {
	r := t.request
	left := make([]bool, len(r.podContainers().all))
	cannot := whyNoContainers(r, result)
	explain := func(x *exception, why string) {
		if r.decider.explain {
			f.tried = append(f.tried, TriedException{Exception: x.title, Why: why})
		}
	}
	add := func(to []*exception, x *exception) []*exception {
		if cannot != "" || len(to) == mostTogether {
			explain(x, cmp.Or(cannot, "other exceptions are taken together already, which are as many as can be"))
			return to
		}
		switch matches, adds, ok := r.leaveOut(x, left); {
		case !ok:
			explain(x, "there are too many containers, names and images to compare")
		case !matches:
			explain(x, "it matches none of the containers "+r.describeContainers())
		case adds:
			return append(to, x)
		}
		return to
	}
	var certain, uncertain []*exception
	for _, x := range exceptions {
		if x.unknown != "" {
			uncertain = append(uncertain, x)
		} else {
			certain = add(certain, x)
		}
	}
	if len(certain) > 0 {
		names, without := r.namesOf(left), r.without(left)
		why := violatedWithout(t, result, without)
		if why == "" {
			f.exception, f.unknown, f.containers = titlesOf(certain), "", names
			return
		}
		f.together, f.without = certain, without
		for _, x := range certain {
			explain(x, "without "+diagnostic.QuotedList(names)+" "+why)
		}
	}
	all := certain
	for _, x := range uncertain {
		all = add(all, x)
	}
	if f.unknown == "" && len(all) > len(certain) && violatedWithout(t, result, r.without(left)) == "" {
		first := all[len(certain)]
		f.exception, f.unknown = first.title, first.unknown
	}
}

// whyNoContainers returns why no exception of containers can cover a violation, "" if one can.
func whyNoContainers(r *request, result *ruleResult) string {
	pod, ok := r.podPath()
	if ok && result.standard != nil {
		return ""
	}
	if result.part != partRule || result.rule == nil {
		return "it is about containers, and the policy could not be evaluated"
	}
	use := readsNone
	if ok {
		use = containerUseOf(result.rule.Reads(), pod)
	}
	switch use {
	case readsNone:
		return "it is about containers, and the rule reads none"
	case readsTogether:
		return "it is about containers, and the rule reads other fields and does not ask each container by itself"
	case canSpare:
	}
	return ""
}

// violatedWithout evaluates the rule again, for the request without containers, and returns in what way it is violated, "" if it holds.
func violatedWithout(t target, result *ruleResult, without *request) string {
	const violated = "the rule is violated all the same"
	v, p := t.request.decider, t.policy
	if result.standard != nil {
		fails, err := p.podSecurity.fails(without, result.standard)
		switch {
		case err != nil:
			return "the pod cannot be checked: " + err.Error()
		case fails:
			return violated
		}
		return ""
	}
	var in expression.Input
	in.Reset(without, t.param.Value(), p.variables)
	v.unanswered = nil
	value, _, err := in.Phase(celconfig.RuntimeCELCostBudget).Eval(v.context, result.rule.Program)
	v.spent, v.observed = v.spent+in.Spent, v.observed+in.Spent
	if failure := v.unansweredError(result.rule.Program); failure != nil {
		err = failure
	}
	switch err = cmp.Or(err, without.decider.err); {
	case errors.Is(err, ErrUnanswered):
		v.noteUndecided(title(p.kind, p.name, ""), err)
		return "" // unknown, which refuses nothing by itself
	case err != nil:
		return "the rule cannot be evaluated: " + err.Error()
	case value != types.True:
		return violated
	}
	return ""
}

// existsWithout reports whether an update keeps what was wrong before in the object without the containers that exceptions are about.
func existsWithout(t target, result *ruleResult, f *finding) bool {
	if f.without == nil {
		return false
	}
	v, own := t.request.decider, f.without.decider
	own.compared, own.uncounted = v.compared, v.uncounted
	if earlier := t.request.earlier; t.request.template != "" && earlier != nil {
		left := make([]bool, len(earlier.podContainers().all))
		for _, x := range f.together {
			earlier.leaveOut(x, left)
		}
		f.without.earlier = earlier.without(left)
	}
	f.without.earlierRead = f.without.earlierRead || t.request.template != ""
	t.request = f.without
	exists := isExisting(t, result)
	v.spent, v.observed = v.spent+own.spent, v.observed+own.observed
	v.compared, v.uncounted = own.compared, own.uncounted
	own.spent, own.observed = 0, 0
	if own.err != nil {
		v.fail(own.err)
	}
	v.undecided = cmp.Or(v.undecided, own.undecided)
	return exists
}

// namesOf returns the names of the containers that are left out.
func (r *request) namesOf(left []bool) []string {
	var out []string
	for i, one := range r.podContainers().all {
		if left[i] && !slices.Contains(out, one.name) {
			out = append(out, one.name)
		}
	}
	return out
}

// describeContainers returns the containers as exceptions know them.
func (r *request) describeContainers() string {
	var out []string
	for _, one := range r.podContainers().all {
		text := strconv.Quote(one.name)
		switch of := one.image; {
		case of.Digest != "":
			text += " (" + of.Name + "@" + of.Digest + ")"
		case of.Name != "":
			text += " (" + of.Name + ":" + of.Tag + ")"
		}
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return strings.Join(out, ", ")
}

// exceptionSeparator is between the titles of several.
const exceptionSeparator = ", "

func titlesOf(exceptions []*exception) string {
	out := make([]string, len(exceptions))
	for i, x := range exceptions {
		out[i] = x.title
	}
	return strings.Join(out, exceptionSeparator)
}
