package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/history/record"
	"github.com/gatehouse-dev/gatehouse/webhooks"
	"github.com/gatehouse-dev/gatehouse/webhooks/policy"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar"
)

var (
	_ policy.Objects                     = (*playback)(nil)
	_ policy.Recording                   = (*playback)(nil)
	_ sidecar.ConfigMaps                 = (*playback)(nil)
	_ authorizer.UnconditionalAuthorizer = (*playback)(nil)
)

// playback answers the lookups of one review after the other from the recording. It is for one
// goroutine.
//
// What was recorded is answered as it was recorded. Params and presets may be part of a
// configuration, too: an object of the candidate's directory counts if the configuration that
// was recorded does not have it, or has another one, and one that the candidate no longer has is gone. If
// the recorded configuration is not known, every object of the candidate's directory
// counts. Namespaces of a directory never do: namespaces are no configuration, and a directory may hold
// none or old ones.
//
// Whether a kind of params is in namespaces is known for the kinds of Kubernetes, and for those whose
// CustomResourceDefinition the candidate's directory has.
type playback struct {
	// candidate is the configuration that decides, and base the one that was recorded, nil if
	// it is not known.
	candidate, base *configuration
	// segment and lookups are those of the review. lookups is nil if none were recorded.
	segment *segment
	lookups *record.Lookups
	now     time.Time
	// missing is the first lookup of a sidecar profile that was not recorded, and lacking that of anything.
	missing, lacking error
}

// begin makes the playback answer for a review.
func (p *playback) begin(item *Item) {
	p.base, p.segment, p.lookups, p.now = item.base, item.segment, item.Review.Lookups, item.Review.Time
	p.missing, p.lacking = nil, nil
}

// answers returns the playback as lookups of a Snapshot. Without an authorizer at the recording, the
// RBAC objects of the candidate's directory answer.
func (p *playback) answers(noAuthorizer bool) webhooks.Lookups {
	out := webhooks.Lookups{
		Objects: p, Namespaces: sidecarNamespaces{p}, ConfigMaps: p, Authorizer: p, Now: func() time.Time { return p.now },
	}
	if noAuthorizer {
		out.Authorizer = p.candidate.config.Policy.Authorizer
	}
	return out
}

// namespace returns a recorded namespace, nil for one that was not known, and an error if that was
// not recorded.
func (p *playback) namespace(name string) (*corev1.Namespace, error) {
	if p.lookups != nil {
		for i := range p.lookups.Namespaces {
			n := &p.lookups.Namespaces[i]
			switch {
			case n.Name != name:
			case n.Object == "":
				return nil, nil //nolint:nilnil // it was not known
			default:
				if o := p.segment.object(n.Object); o != nil {
					if found := o.asNamespace(); found != nil {
						return found, nil
					}
				}
			}
		}
	}
	return nil, p.lack(fmt.Errorf("reads namespace %q, %w", name, errMissing))
}

// Namespace implements policy.Objects.
func (p *playback) Namespace(name string) (*corev1.Namespace, bool) {
	found, _ := p.namespace(name)
	return found, found != nil
}

// MissingNamespace implements policy.Recording.
func (p *playback) MissingNamespace(name string) error {
	_, err := p.namespace(name)
	return err
}

// sidecarNamespaces is a playback as sidecar.Namespaces.
type sidecarNamespaces struct{ p *playback }

// Namespace implements sidecar.Namespaces.
func (n sidecarNamespaces) Namespace(name string) (*corev1.Namespace, bool) {
	found, err := n.p.namespace(name)
	n.p.miss(err)
	return found, found != nil
}

// lack notes the error of a lookup that was not recorded, and returns it.
func (p *playback) lack(err error) error {
	p.lacking = cmp.Or(p.lacking, err)
	return err
}

// miss notes the error of a lookup by a sidecar profile.
func (p *playback) miss(err error) {
	if p.missing == nil {
		p.missing = err
	}
}

// recordedError is an error as it was recorded.
type recordedError struct {
	text      string
	notServed bool
}

func (e *recordedError) Error() string { return e.text }

// Is reports whether the error that was recorded wrapped policy.ErrNotServed.
func (e *recordedError) Is(target error) bool { return e.notServed && target == policy.ErrNotServed }

// Namespaced implements policy.Objects.
func (p *playback) Namespaced(kind schema.GroupVersionKind) (bool, error) {
	if p.lookups != nil {
		for i := range p.lookups.Kinds {
			if k := &p.lookups.Kinds[i]; schema.GroupVersionKind(k.Kind) == kind {
				if k.Error != "" {
					return false, &recordedError{k.Error, k.NotServed}
				}
				return k.Namespaced, nil
			}
		}
	}
	if !p.candidate.resources.Of(kind).Guessed {
		return p.candidate.objects.Namespaced(kind) //nolint:wrapcheck // it is as in the server
	}
	return false, p.lack(fmt.Errorf("reads params of kind %s, %w (hint: put its CustomResourceDefinition into the directory of the configuration)", kindText(kind), errMissing))
}

func kindText(kind schema.GroupVersionKind) string {
	return kind.GroupVersion().String() + "/" + kind.Kind
}

// Get implements policy.Objects.
func (p *playback) Get(kind schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	own, _ := p.candidate.objects.Get(kind, namespace, name) // a directory has no errors
	var before *unstructured.Unstructured
	if p.base != nil {
		before, _ = p.base.objects.Get(kind, namespace, name)
	}
	recorded, known, err := p.recordedObject(kind, namespace, name)
	switch {
	case own != nil && (!known || p.base == nil || !sameObject(own, before)):
		return own, nil
	case known && err == nil && own == nil && recorded != nil && before != nil && sameObject(before, recorded):
		return nil, nil //nolint:nilnil // the candidate has removed it
	case known:
		return recorded, err
	default:
		return nil, p.lack(fmt.Errorf("reads params %s %s, %w", kindText(kind), joinName(namespace, name), errMissing))
	}
}

func joinName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

func sameObject(a, b *unstructured.Unstructured) bool {
	return a == b || a != nil && b != nil && equality.Semantic.DeepEqual(a.Object, b.Object)
}

// recordedObject returns a recorded object, nil for one that there was not, and whether that is known.
func (p *playback) recordedObject(kind schema.GroupVersionKind, namespace, name string) (found *unstructured.Unstructured, known bool, err error) {
	if p.lookups == nil {
		return nil, false, nil
	}
	for i := range p.lookups.Objects {
		o := &p.lookups.Objects[i]
		switch {
		case o.Name != name || o.Namespace != namespace || schema.GroupVersionKind(o.Kind) != kind:
		case o.Error != "":
			return nil, true, &recordedError{text: o.Error}
		case o.Object == "":
			return nil, true, nil
		default:
			found := p.tree(o.Object)
			return found, found != nil, nil
		}
	}
	return nil, false, nil
}

// tree returns an object of the segment, nil if it is not there or cannot be read.
func (p *playback) tree(digest string) *unstructured.Unstructured {
	o := p.segment.object(digest)
	if o == nil {
		return nil
	}
	return o.asTree()
}

// List implements policy.Objects.
func (p *playback) List(kind schema.GroupVersionKind, namespace string, selector labels.Selector) ([]*unstructured.Unstructured, error) {
	own, _ := p.candidate.objects.List(kind, namespace, selector) // a directory has no errors
	var before []*unstructured.Unstructured
	if p.base != nil {
		before, _ = p.base.objects.List(kind, namespace, selector)
	}
	recorded, known, err := p.recordedList(kind, namespace, selector)
	switch {
	case !known && len(own) == 0:
		return nil, p.lack(fmt.Errorf("reads params %s %s by labels, %w", kindText(kind), joinName(namespace, "*"), errMissing))
	case !known:
		return own, nil
	case err != nil || len(own)+len(before) == 0:
		return recorded, err
	case p.base != nil && slices.EqualFunc(own, before, sameObject):
		return recorded, nil
	}
	out := slices.DeleteFunc(slices.Clone(recorded), func(o *unstructured.Unstructured) bool {
		named := func(other *unstructured.Unstructured) bool { return other.GetName() == o.GetName() }
		i := slices.IndexFunc(before, named)
		return slices.ContainsFunc(own, named) || i >= 0 && sameObject(before[i], o)
	})
	out = append(out, own...)
	slices.SortFunc(out, func(a, b *unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return out, nil
}

func (p *playback) recordedList(kind schema.GroupVersionKind, namespace string, selector labels.Selector) (found []*unstructured.Unstructured, known bool, err error) {
	if p.lookups == nil {
		return nil, false, nil
	}
	text := record.SelectorText(selector)
	for i := range p.lookups.Lists {
		l := &p.lookups.Lists[i]
		if l.Namespace != namespace || l.Selector != text || l.Kind != metav1.GroupVersionKind(kind) {
			continue
		}
		if l.Error != "" {
			return nil, true, &recordedError{text: l.Error}
		}
		for _, digest := range l.Objects {
			o := p.tree(digest)
			if o == nil {
				return nil, false, nil
			}
			found = append(found, o)
		}
		return found, true, nil
	}
	return nil, false, nil
}

// ConfigMapData implements sidecar.ConfigMaps.
func (p *playback) ConfigMapData(namespace, name string) (map[string]string, bool) {
	own, has := p.candidate.configMap(namespace, name)
	var (
		before map[string]string
		had    bool
	)
	if p.base != nil {
		before, had = p.base.configMap(namespace, name)
	}
	recorded, found, known := p.recordedConfigMap(namespace, name)
	switch {
	case has && (!known || p.base == nil || !had || !maps.Equal(own, before)):
		return own, true
	case known && found && had && !has && maps.Equal(before, recorded):
		return nil, false // the candidate has removed it
	case known:
		return recorded, found
	default:
		p.miss(p.lack(fmt.Errorf("reads preset v1/ConfigMap %s, %w", joinName(namespace, name), errMissing)))
		return nil, false
	}
}

func (p *playback) recordedConfigMap(namespace, name string) (data map[string]string, found, known bool) {
	if p.lookups == nil {
		return nil, false, false
	}
	for i := range p.lookups.ConfigMaps {
		c := &p.lookups.ConfigMaps[i]
		switch {
		case c.Name != name || c.Namespace != namespace:
		case c.Object == "":
			return nil, false, true
		default:
			if o := p.segment.object(c.Object); o != nil {
				if configMap := o.asConfigMap(); configMap != nil {
					return configMap.Data, true, true
				}
			}
			return nil, false, false
		}
	}
	return nil, false, false
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (p *playback) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if p.lookups != nil {
		asked := record.AttributesKey(a)
		for i := range p.lookups.Authorizer {
			one := &p.lookups.Authorizer[i]
			decision, ok := decisions[one.Decision]
			if one.Attributes != asked || !ok {
				continue
			}
			if one.Error != "" {
				return decision, one.Reason, errors.New(one.Error)
			}
			return decision, one.Reason, nil
		}
	}
	return authorizer.DecisionNoOpinion, "", p.lack(fmt.Errorf("asks the authorizer for an answer %w", errMissing))
}

//nolint:gochecknoglobals // constant
var decisions = map[string]authorizer.Decision{
	"allow": authorizer.DecisionAllow, "deny": authorizer.DecisionDeny, "noOpinion": authorizer.DecisionNoOpinion,
}
