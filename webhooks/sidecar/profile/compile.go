// Package profile compiles SidecarProfiles: it checks each and all of them together,
// orders them, and renders what one adds to a pod.
package profile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	celbound "github.com/gatehouse-dev/gatehouse/webhooks/cel/bound"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/strict"
	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podcheck"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/template"
)

// Profile is a compiled SidecarProfile.
type Profile struct {
	Name, source string
	OptOut       bool
	// Percent is the share of workloads in the rollout, and Replaces the name of the
	// profile that this one replaces there.
	Percent  int32
	Replaces string
	// AnnotationPrefix is the prefix of the annotations that set parameters. It has the
	// name of the profile that this one replaces.
	AnnotationPrefix string
	// ReplacedBy is the index of the profile that replaces this one, or -1.
	ReplacedBy int

	First                        [podtext.NumLists]bool // in front of the pod's own
	HostNetwork, PodsThatEnd     v1alpha1.SpecialPodAction
	OnConflict                   v1alpha1.ConflictAction
	OnSameName                   v1alpha1.SameNameAction
	DistinctUsers, before, after []string

	// ObjectSelector and NamespaceSelector are nil if they match everything.
	ObjectSelector, NamespaceSelector labels.Selector
	// NameSelector is the part of NamespaceSelector that depends on the name of the
	// namespace alone, or nil. NameOnly is true if there is no other part.
	NameSelector labels.Selector
	NameOnly     bool
	Conditions   []condition

	Scope   *template.Scope
	Presets map[string]v1alpha1.ObjectReference
	// Fixed is what is added if it is the same for every pod, nil otherwise.
	Fixed *Rendered

	// Elements are those of each list, in the order of the template.
	Elements [podtext.NumLists][]Element
	// Names are those of the elements.
	Names     [podtext.NumLists][]string
	metadata  *template.Tree // an object of labels and annotations, or nil
	spec      *template.Tree // the spec without the lists, or nil
	Additions []Addition
	Shares    []v1alpha1.SidecarShare

	// AppContainer is the name of a container of the template that is not an init
	// container, or empty. It keeps the pod from ending.
	AppContainer string
	// ExcludedSystems are the operating systems that the profile is not for.
	ExcludedSystems sets.Set[string]
	Constraints     Constraints
}

type condition struct {
	Name string
	*template.Condition
}

// Element is one element of a template.
type Element struct {
	Name string
	tree *template.Tree
	// IsNative is true for an init container that is a native sidecar.
	IsNative bool
	// ports are those of the sample, for the comparison of profiles.
	ports podtext.Ports
}

// Addition is what is added to some of the pod's own containers.
type Addition struct {
	v1alpha1.AppContainerAdditions
	tree *template.Tree
}

// RunsWithOthers reports whether the element runs while others do, so that its ports clash
// with theirs. A plain init container of a template has ended before the pod's
// own containers start.
func (e *Element) RunsWithOthers(l podtext.List) bool { return l == podtext.Containers || e.IsNative }

// HasOnlyVolumes reports whether the template has no containers.
func (p *Profile) HasOnlyVolumes() bool {
	return len(p.Elements[podtext.InitContainers])+len(p.Elements[podtext.Containers]) == 0
}

// FixedRevision returns the revision, or nothing if it depends on the pod.
func (p *Profile) FixedRevision() string {
	if p.Fixed == nil {
		return ""
	}
	return p.Fixed.Revision
}

type compiler struct {
	environment *template.Environment
	profile     *Document
	configMaps  ConfigMaps
	// budget is that of the profile's expressions and patterns.
	budget      celbound.Budget
	diagnostics diagnostic.List
	// typed is what the profile adds, as it would be in a plausible pod.
	typed        sample
	addsAnything bool
	placeholders sets.Set[string]
	check        *podcheck.Checker
}

// Compile compiles a profile. The profile is not usable if the diagnostics have
// an error.
func Compile(in Input) (*Profile, diagnostic.List) {
	c := compiler{environment: in.Environment, profile: in.Profile, configMaps: in.ConfigMaps, budget: celbound.Budget{Stop: in.Stop}}
	p := c.compile()
	return p, c.diagnostics
}

// Input is what Compile needs.
type Input struct {
	Environment *template.Environment
	Profile     *Document
	ConfigMaps  ConfigMaps
	// Stop returns an error once the compilation is to end. It may be nil.
	Stop func() error
}

func (c *compiler) compile() *Profile {
	from := c.profile
	p := &Profile{
		Name:          from.Name,
		source:        from.Source,
		OptOut:        from.Spec.Injection == v1alpha1.OptOut,
		Percent:       100,
		ReplacedBy:    -1,
		HostNetwork:   cmp.Or(from.Spec.HostNetwork, v1alpha1.SkipPod),
		PodsThatEnd:   cmp.Or(from.Spec.PodsThatEnd, v1alpha1.SkipPod),
		OnConflict:    cmp.Or(from.Spec.OnConflict, v1alpha1.RefuseConflict),
		OnSameName:    cmp.Or(from.Spec.OnSameName, v1alpha1.RefuseSameName),
		DistinctUsers: from.Spec.DistinctUsers,
		before:        from.Spec.Placement.Before,
		after:         from.Spec.Placement.After,
		Shares:        from.Spec.Share,
		Presets:       make(map[string]v1alpha1.ObjectReference, len(from.Spec.Presets)),
	}
	p.First[podtext.InitContainers] = from.Spec.Placement.InitContainers != v1alpha1.Last
	p.First[podtext.Containers] = from.Spec.Placement.Containers == v1alpha1.First
	if r := from.Spec.Rollout; r != nil {
		p.Percent, p.Replaces = r.Percent, r.Replaces
	}
	p.AnnotationPrefix = cmp.Or(p.Replaces, p.Name) + "." + v1alpha1.ParameterDomain + "/"
	for _, preset := range from.Spec.Presets {
		p.Presets[preset.Name] = preset.ConfigMap
	}
	p.ObjectSelector = selector(from.Spec.Match.ObjectSelector)
	p.NamespaceSelector = selector(from.Spec.Match.NamespaceSelector)
	if p.NamespaceSelector != nil {
		p.NameSelector, p.NameOnly = nameRequirements(p.NamespaceSelector)
	}
	var found diagnostic.List
	p.Scope, found = c.environment.Scope(&c.budget, cmp.Or(p.Replaces, from.Name), from.Spec.Parameters, from.Spec.Presets)
	c.add(found)
	c.checkProfile()
	c.checkRequired(p)
	if p.Scope == nil {
		return p
	}
	for i, mc := range from.Spec.Match.MatchConditions {
		path := fmt.Sprintf("spec.match.matchConditions[%d].expression", i)
		compiled, found := p.Scope.Condition(path, mc.Expression)
		if compiled != nil && compiled.IsNever() {
			found = append(found, diagnostic.Diagnostic{
				Severity: diagnostic.Warning, Field: path, NoEffect: true,
				Message: fmt.Sprintf("%q is never true, so the profile does nothing", diagnostic.Excerpt(mc.Expression, 1, 1)),
			})
		}
		c.add(found)
		p.Conditions = append(p.Conditions, condition{mc.Name, compiled})
	}
	c.compileTrees(p)
	c.checkTemplate(p)
	if c.diagnostics.Err() == nil {
		c.renderFixed(p)
	}
	return p
}

// add adds diagnostics of other packages, which do not know the document.
func (c *compiler) add(found diagnostic.List) {
	for _, f := range found {
		f.Source, f.Object = c.profile.Source, objectName(c.profile)
		c.diagnostics = append(c.diagnostics, f)
	}
}

func (c *compiler) compileTrees(p *Profile) {
	from := &c.profile.Spec
	c.addsAnything = len(from.Template.Metadata.Labels)+len(from.Template.Metadata.Annotations)+len(from.AppContainers) > 0
	tree := func(path string, raw rawjson.Value, into reflect.Type) *template.Tree {
		t, found := p.Scope.Tree(path, raw, into)
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
	before := len(c.diagnostics)
	spec, ok := c.object("spec.template.spec", from.Template.Spec.Raw)
	c.addsAnything = c.addsAnything || len(c.diagnostics) > before
	c.placeholders = sets.New[string]()
	podcheck.FindPlaceholders(c.placeholders, "spec.template.spec", spec)
	if ok {
		var rest []byte
		for nameText, value := range spec.Members() {
			name := nameText.Text()
			c.addsAnything = c.addsAnything || value.Len() > 0 || value.Kind() != rawjson.Array && value.Kind() != rawjson.Null
			l, isList := podtext.ListNamed(name)
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
				e := Element{Name: raw.Get("name").Text(), tree: tree(at, raw, elementType(l))}
				e.IsNative = l == podtext.InitContainers && raw.Get("restartPolicy").Is(string(corev1.ContainerRestartPolicyAlways))
				if policy := raw.Get("restartPolicy").Text(); l == podtext.InitContainers && strings.Contains(policy, "${") {
					c.error(at+".restartPolicy", "write the value literally: it decides whether the container is a native sidecar", "%q: the restartPolicy of an init container cannot have a placeholder", strict.Cut(policy, 64))
				}
				p.Elements[l], p.Names[l] = append(p.Elements[l], e), append(p.Names[l], e.Name)
			}
		}
		if len(rest) > 0 {
			rest[0] = '{'
			rest = append(rest, '}')
			podcheck.New(nil, c.report).Repeated("spec.template.spec", rest, merge.PodRules)
			p.spec = tree("spec.template.spec", rest, reflect.TypeFor[corev1.PodSpec]())
		}
	}
	for i := range from.AppContainers {
		path := fmt.Sprintf("spec.appContainers[%d].template", i)
		before := len(c.diagnostics)
		raw, ok := c.object(path, from.AppContainers[i].Template.Raw)
		podcheck.FindPlaceholders(c.placeholders, path, raw)
		a := Addition{AppContainerAdditions: from.AppContainers[i]}
		switch {
		case ok && raw.Len() > 0:
			podcheck.New(nil, c.report).Repeated(path, raw, podcheck.AdditionRules)
			a.tree = tree(path, raw, reflect.TypeFor[corev1.Container]())
		case len(c.diagnostics) == before:
			c.error(path, "", "nothing is added")
		}
		p.Additions = append(p.Additions, a)
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

// nameRequirements returns the part of a selector that looks at the label which
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

// DeclineHint returns the hint how a pod opts out of the profile.
func (p *Profile) DeclineHint() string {
	return "decline the profile with the annotation " + v1alpha1.InjectAnnotation + `: "-` + cmp.Or(p.Replaces, p.Name) + `"`
}

// Document is a SidecarProfile and where it was found.
type Document struct {
	// Source is the file and document, for messages only: "profiles/log.yaml#2".
	Source string
	v1alpha1.SidecarProfile
}

// ConfigMaps looks up the data of presets. It must be safe for concurrent use, and what
// it returns must not change.
type ConfigMaps interface {
	// ConfigMapData returns the data of a ConfigMap, and whether it is known.
	ConfigMapData(namespace, name string) (data map[string]string, known bool)
}
