package sidecar

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/strict"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/celbound"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/podsecurity"
	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
)

// profile is a compiled SidecarProfile.
type profile struct {
	name, source string
	optOut       bool
	// percent is the share of workloads, and replaces the profile whose place
	// this one takes there.
	percent  int32
	replaces string
	// annotationPrefix is what the annotations that set parameters begin with. A
	// profile that takes the place of another answers to that one's name.
	annotationPrefix string
	// replacedBy is the index of the profile that takes this one's place in its
	// share, or -1.
	replacedBy int

	first                         [lists]bool // in front of the pod's own
	hostNetwork, podsThatEnd      v1alpha1.SpecialPodAction
	onConflict                    v1alpha1.ConflictAction
	onSameName                    v1alpha1.SameNameAction
	distinctUsers, before, behind []string

	// objects and namespaces are nil for a selector that matches everything.
	objects, namespaces labels.Selector
	// byName is the part of namespaces that looks at nothing but the
	// namespace's name, nil without one; nameOnly says that there is no other.
	byName     labels.Selector
	nameOnly   bool
	conditions []condition

	scope   *template.Scope
	presets map[string]v1alpha1.ObjectReference
	// fixed is what is added if it is the same for every pod, nil otherwise.
	fixed *rendered

	// elements are those of each list, in the order of the template.
	elements [lists][]element
	// names are those of the elements.
	names    [lists][]string
	metadata *template.Tree // an object of labels and annotations, or nil
	spec     *template.Tree // the spec without the lists, or nil
	app      []additions
	share    []v1alpha1.SidecarShare

	// plain is the name of a container that keeps a pod from ending: one of the
	// template's containers. It is empty if there is none.
	plain string
	// systems are the operating systems that the profile is not for.
	systems systems
	demands demands
	// clean are the levels of Pod Security at which what is added cannot make a
	// pod inadmissible.
	clean podsecurity.Levels
}

type condition struct {
	name string
	*template.Condition
}

// element is one element of a template.
type element struct {
	name string
	tree *template.Tree
	// native tells that an init container is a native sidecar.
	native bool
	// ports are those of the sample, for the comparison of profiles.
	ports portList
}

// additions are what is added to some of the pod's own containers.
type additions struct {
	v1alpha1.AppContainerAdditions
	tree *template.Tree
}

// runs tells whether the element runs while others do, so that its ports clash
// with theirs. A plain init container of a template has ended before the pod's
// own containers start.
func (e *element) runs(l list) bool { return l == containers || e.native }

func (p *profile) onlyVolumes() bool {
	return len(p.elements[initContainers])+len(p.elements[containers]) == 0
}

// revision is that of what is the same for every pod.
func (p *profile) revision() string {
	if p.fixed == nil {
		return ""
	}
	return p.fixed.revision
}

// compiler compiles one profile.
type compiler struct {
	environment *template.Environment
	profile     *Profile
	configMaps  ConfigMaps
	// budget is that of the profile's expressions and patterns.
	budget celbound.Budget
	found  diagnostic.List
	// typed is what the profile adds, as it would be in a plausible pod.
	typed typed
	// says tells whether the profile adds anything.
	says bool
	// placeholders are those of the template's spec and of the additions.
	placeholders placeholders
	check        *checker
}

// compileProfile compiles a profile. The profile is not usable if the diagnostics have
// an error.
func compileProfile(in compileInput) (*profile, diagnostic.List) {
	c := compiler{environment: in.environment, profile: in.profile, configMaps: in.configMaps, budget: celbound.Budget{Stop: in.stop}}
	p := c.compile()
	if c.found.Err() == nil && p.fixed != nil {
		p.clean = in.security.CleanAlone(&c.typed.spec, c.typed.annotations, c.typed.app...)
	}
	return p, c.found
}

// compileInput is what compileProfile needs.
type compileInput struct {
	environment *template.Environment
	security    *podsecurity.Evaluator
	profile     *Profile
	configMaps  ConfigMaps
	// stop returns an error once the compilation is to end. It may be nil.
	stop func() error
}

func (c *compiler) compile() *profile {
	from := c.profile
	p := &profile{
		name:          from.Name,
		source:        from.Source,
		optOut:        from.Spec.Injection == v1alpha1.OptOut,
		percent:       100,
		replacedBy:    -1,
		hostNetwork:   cmp.Or(from.Spec.HostNetwork, v1alpha1.SkipPod),
		podsThatEnd:   cmp.Or(from.Spec.PodsThatEnd, v1alpha1.SkipPod),
		onConflict:    cmp.Or(from.Spec.OnConflict, v1alpha1.RefuseConflict),
		onSameName:    cmp.Or(from.Spec.OnSameName, v1alpha1.RefuseSameName),
		distinctUsers: from.Spec.DistinctUsers,
		before:        from.Spec.Placement.Before,
		behind:        from.Spec.Placement.After,
		share:         from.Spec.Share,
		presets:       make(map[string]v1alpha1.ObjectReference, len(from.Spec.Presets)),
	}
	p.first[initContainers] = from.Spec.Placement.InitContainers != v1alpha1.Last
	p.first[containers] = from.Spec.Placement.Containers == v1alpha1.First
	if r := from.Spec.Rollout; r != nil {
		p.percent, p.replaces = r.Percent, r.Replaces
	}
	p.annotationPrefix = cmp.Or(p.replaces, p.name) + "." + v1alpha1.ParameterDomain + "/"
	for _, preset := range from.Spec.Presets {
		p.presets[preset.Name] = preset.ConfigMap
	}
	p.objects = selector(from.Spec.Match.ObjectSelector)
	p.namespaces = selector(from.Spec.Match.NamespaceSelector)
	if p.namespaces != nil {
		p.byName, p.nameOnly = nameRequirements(p.namespaces)
	}
	var found diagnostic.List
	p.scope, found = c.environment.ScopeWithin(&c.budget, cmp.Or(p.replaces, from.Name), from.Spec.Parameters, from.Spec.Presets)
	c.add(found)
	c.checkProfile()
	c.checkRequired(p)
	if p.scope == nil {
		return p
	}
	for i, mc := range from.Spec.Match.MatchConditions {
		compiled, found := p.scope.Condition(fmt.Sprintf("spec.match.matchConditions[%d].expression", i), mc.Expression)
		c.add(found)
		p.conditions = append(p.conditions, condition{mc.Name, compiled})
	}
	c.trees(p)
	c.checkTemplate(p)
	if c.found.Err() == nil {
		c.fix(p)
	}
	return p
}

// add takes over findings of the packages below, which do not know the document.
func (c *compiler) add(found diagnostic.List) {
	for _, f := range found {
		f.Source, f.Object = c.profile.Source, objectName(c.profile)
		c.found = append(c.found, f)
	}
}

// trees takes the template apart and compiles its parts.
func (c *compiler) trees(p *profile) {
	from := &c.profile.Spec
	c.says = len(from.Template.Metadata.Labels)+len(from.Template.Metadata.Annotations)+len(from.AppContainers) > 0
	tree := func(path string, raw rawjson.Value, shape reflect.Type) *template.Tree {
		t, found := p.scope.Tree(path, raw, shape)
		c.add(found)
		if found.Err() != nil {
			return nil // There is nothing that could be looked into further.
		}
		return t
	}
	if m := from.Template.Metadata; len(m.Labels)+len(m.Annotations) > 0 {
		raw, err := json.Marshal(m)
		if err != nil {
			c.error("spec.template.metadata", "", "cannot be written as JSON: %v", err)
		}
		p.metadata = tree("spec.template.metadata", raw, reflect.TypeFor[v1alpha1.SidecarTemplateMetadata]())
	}
	before := len(c.found)
	spec, ok := c.object("spec.template.spec", from.Template.Spec.Raw)
	c.says = c.says || len(c.found) > before
	added := make(placeholders, len(from.AppContainers))
	c.placeholders = placeholders{"spec": {"template": {"spec": placeholdersIn(spec)}, "appContainers": added}}
	if ok {
		var rest []byte
		for nameText, value := range spec.Members() {
			name := nameText.Text()
			c.says = c.says || value.Len() > 0 || value.Kind() != rawjson.Array && value.Kind() != rawjson.Null
			l, isList := listNamed(name)
			if !isList {
				rest = append(append(append(append(rest, ','), nameText...), ':'), value...)
				continue
			}
			path := "spec.template.spec." + name
			if value.Kind() != rawjson.Array {
				if value.Kind() != rawjson.Null {
					c.error(path, "", "expected a list, not %s", value.Kind())
				}
				continue
			}
			for i, raw := range value.Elements() {
				at := path + "[" + strconv.Itoa(i) + "]"
				if raw.Kind() != rawjson.Object {
					c.error(at, "", "expected an object, not %s", raw.Kind())
					continue
				}
				e := element{name: raw.Get("name").Text(), tree: tree(at, raw, shapeOf(l))}
				e.native = l == initContainers && raw.Get("restartPolicy").Is(string(corev1.ContainerRestartPolicyAlways))
				if policy := raw.Get("restartPolicy").Text(); l == initContainers && strings.Contains(policy, "${") {
					c.error(at+".restartPolicy", "write it out", "%q: whether an init container is a native sidecar cannot depend on the pod", strict.Cut(policy, 64))
				}
				p.elements[l], p.names[l] = append(p.elements[l], e), append(p.names[l], e.name)
			}
		}
		if len(rest) > 0 {
			rest[0] = '{'
			rest = append(rest, '}')
			newChecker(nil, c.report).repeated("spec.template.spec", rest, podRules)
			p.spec = tree("spec.template.spec", rest, reflect.TypeFor[corev1.PodSpec]())
		}
	}
	for i := range from.AppContainers {
		path := fmt.Sprintf("spec.appContainers[%d].template", i)
		before := len(c.found)
		raw, ok := c.object(path, from.AppContainers[i].Template.Raw)
		added[indexed("", i)] = placeholders{"template": placeholdersIn(raw)}
		a := additions{AppContainerAdditions: from.AppContainers[i]}
		switch {
		case ok && raw.Len() > 0:
			newChecker(nil, c.report).repeated(path, raw, additionRules)
			a.tree = tree(path, raw, reflect.TypeFor[corev1.Container]())
		case len(c.found) == before:
			c.error(path, "", "nothing is added")
		}
		p.app = append(p.app, a)
	}
}

// object reads the text of an object. Absent and null are no object, and no
// error.
func (c *compiler) object(path string, text []byte) (rawjson.Value, bool) {
	if len(text) == 0 {
		return nil, false
	}
	value, err := rawjson.Parse(text)
	if err != nil {
		c.error(path, "", "is not JSON: %v", err)
		return nil, false
	}
	switch kind := value.Kind(); kind {
	case rawjson.Object:
		return value, true
	case rawjson.Null:
	case rawjson.Invalid, rawjson.Bool, rawjson.Number, rawjson.String, rawjson.Array:
		c.error(path, "", "expected an object, not %s", kind)
	}
	return nil, false
}

// selector compiles a label selector that was checked. It is nil for one that
// matches everything, as a nil selector does here.
func selector(from *metav1.LabelSelector) labels.Selector {
	if from == nil {
		return nil
	}
	s, err := metav1.LabelSelectorAsSelector(from)
	if err != nil {
		return labels.Nothing() // Reported by checkProfile.
	}
	if s.Empty() {
		return nil
	}
	return s
}

// nameRequirements is the part of a selector that looks at the label which
// every namespace has and whose value is its name.
func nameRequirements(from labels.Selector) (byName labels.Selector, only bool) {
	all, _ := from.Requirements()
	for _, r := range all {
		if r.Key() != corev1.LabelMetadataName {
			continue
		}
		if byName == nil {
			byName = labels.NewSelector()
		}
		byName = byName.Add(r)
	}
	if byName == nil {
		return nil, false
	}
	named, _ := byName.Requirements()
	return byName, len(named) == len(all)
}

// declineHint says how a pod does without the profile.
func (p *profile) declineHint() string {
	return "decline the profile with the annotation " + v1alpha1.InjectAnnotation + `: "-` + cmp.Or(p.replaces, p.name) + `"`
}

// Profile is a SidecarProfile and where it was found.
type Profile struct {
	// Source is the file and document, for messages only: "profiles/log.yaml#2".
	Source string
	v1alpha1.SidecarProfile
}

// ConfigMaps tells what presets hold. It must be safe for concurrent use, and
// what it returns must not change.
type ConfigMaps interface {
	// ConfigMapData returns the data of a ConfigMap, and whether it is known at
	// all.
	ConfigMapData(namespace, name string) (data map[string]string, known bool)
}
