package policy

import (
	"errors"
	"fmt"
	"math"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// params finds the params of a binding. Its zero value is a binding without.
type params struct {
	kind schema.GroupVersionKind
	// ref is nil if policy or binding know nothing of params.
	ref      *admissionregistrationv1.ParamRef
	selector labels.Selector
}

func compileParams(kind *admissionregistrationv1.ParamKind, ref *admissionregistrationv1.ParamRef) params {
	if kind == nil || ref == nil {
		return params{}
	}
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	out := params{kind: gvk, ref: ref}
	if ref.Selector != nil {
		out.selector, _ = metav1.LabelSelectorAsSelector(ref.Selector) // checked before
	}
	return out
}

// checkParamKind returns an error if the policy's paramKind is not served. As upstream
// it is an error of the policy, whatever its bindings match.
func (p *compiledPolicy) checkParamKind(objects Objects) error {
	if p.spec.ParamKind == nil {
		return nil
	}
	if _, err := objects.Namespaced(p.paramKind()); errors.Is(err, ErrNotServed) {
		return err
	}
	return nil
}

// paramKind returns the kind of the params of a policy that has one.
func (p *compiledPolicy) paramKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(p.spec.ParamKind.APIVersion, p.spec.ParamKind.Kind)
}

// errNoParams is upstream's.
var errNoParams = errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")

// find returns every param of the binding, which has a ref, for a request in a namespace, in the order
// of their names. The policy is evaluated once for
// each. An error denies, or not, as the failure policy says.
func (p *params) find(objects Objects, namespace string) ([]*param, error) {
	namespaced, err := objects.Namespaced(p.kind)
	switch {
	case err != nil:
		return nil, err
	case !namespaced && p.ref.Namespace != "":
		return nil, fmt.Errorf("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	case !namespaced:
		namespace = ""
	case p.ref.Namespace != "":
		namespace = p.ref.Namespace
	case namespace == "":
		return nil, errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
	}
	var out []*param
	if p.selector != nil {
		list, err := objects.List(p.kind, namespace, p.selector)
		if err != nil {
			return nil, err
		}
		for _, object := range list {
			out = append(out, &param{object})
		}
	} else {
		object, err := objects.Get(p.kind, namespace, p.ref.Name)
		switch {
		case err != nil:
			return nil, err
		case object != nil:
			out = append(out, &param{object})
		}
	}
	if len(out) == 0 && *p.ref.ParameterNotFoundAction == admissionregistrationv1.DenyAction {
		return nil, errNoParams
	}
	return out, nil
}

// param is an object that expressions see as params. Nil is none.
type param struct{ object *unstructured.Unstructured }

// value returns the value of params.
func (p *param) value() ref.Val {
	if p == nil {
		return nil
	}
	return adapter{}.NativeToValue(p.object.Object)
}

// adapter gives the values of params, which upstream decodes from JSON: a double
// that is an integer is written as one there.
type adapter struct{}

// NativeToValue is cel-go's own but for such doubles.
func (a adapter) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case map[string]any:
		return types.NewStringInterfaceMap(a, v)
	case []any:
		return types.NewDynamicList(a, v)
	case float64:
		const most = 1 << 63
		if v == math.Trunc(v) && v >= -most && v < most {
			return types.Int(v)
		}
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

// name returns that of the object, with its namespace.
func (p *param) name() string {
	if p == nil {
		return ""
	}
	if namespace := p.object.GetNamespace(); namespace != "" {
		return namespace + "/" + p.object.GetName()
	}
	return p.object.GetName()
}
