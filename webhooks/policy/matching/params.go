package matching

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

// Params finds the params of a binding. Its zero value is a binding without.
type Params struct {
	Kind schema.GroupVersionKind
	// Ref is nil if policy or binding know nothing of params.
	Ref      *admissionregistrationv1.ParamRef
	selector labels.Selector
}

// CompileParams compiles the params of a policy's binding, which have been checked.
func CompileParams(kind *admissionregistrationv1.ParamKind, ref *admissionregistrationv1.ParamRef) Params {
	if kind == nil || ref == nil {
		return Params{}
	}
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	out := Params{Kind: gvk, Ref: ref}
	if ref.Selector != nil {
		out.selector, _ = metav1.LabelSelectorAsSelector(ref.Selector) // checked before
	}
	return out
}

// Selects reports whether the binding selects its params by their labels.
func (p *Params) Selects() bool { return p.selector != nil }

// CheckParamKind returns an error if the paramKind of a policy, nil for none, is not served. As upstream
// it is an error of the policy, whatever its bindings match.
func CheckParamKind(objects Objects, kind *admissionregistrationv1.ParamKind) error {
	if kind == nil {
		return nil
	}
	if _, err := objects.Namespaced(schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)); errors.Is(err, ErrNotServed) {
		return err
	}
	return nil
}

// ErrNoParams is upstream's.
var ErrNoParams = errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")

// NoParamsError is an ErrNoParams that says what does not exist.
type NoParamsError struct {
	Kind schema.GroupVersionKind
	// Namespace is "" for a kind that is in none. Name is "" for params that Labels select.
	Namespace, Name, Labels string
}

// What names the params: ConfigMap "limits" in namespace "shop".
func (e *NoParamsError) What() string {
	what := e.Kind.Kind
	switch {
	case e.Name != "":
		what += fmt.Sprintf(" %q", e.Name)
	case e.Labels != "":
		what += fmt.Sprintf(" with labels %q", e.Labels)
	}
	if e.Namespace != "" {
		what += fmt.Sprintf(" in namespace %q", e.Namespace)
	}
	return what
}

// Error begins with upstream's text.
func (e *NoParamsError) Error() string {
	return fmt.Sprintf("%v: there is no %s (hint: create it)", ErrNoParams, e.What())
}

// Unwrap returns ErrNoParams.
func (e *NoParamsError) Unwrap() error { return ErrNoParams }

// Missing returns what Find does not find and therefore denies. Params in the namespace of the request are looked for in the namespaces.
func (p *Params) Missing(objects Objects, namespaces []string) (missing []*NoParamsError) {
	if p.Ref == nil || *p.Ref.ParameterNotFoundAction != admissionregistrationv1.DenyAction {
		return nil
	}
	if namespaced, err := objects.Namespaced(p.Kind); err != nil {
		return nil
	} else if !namespaced || p.Ref.Namespace != "" {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		_, err := p.Find(objects, namespace)
		if one, ok := errors.AsType[*NoParamsError](err); ok {
			missing = append(missing, one)
		}
	}
	return missing
}

// MissingParams is a binding that denies what its policy matches, because its params do not exist.
type MissingParams struct {
	// Kind and Binding are those of the binding.
	Kind, Binding, Policy string
	// Params names them, as NoParamsError.What does.
	Params string
}

// String says it in a sentence.
func (m MissingParams) String() string {
	return fmt.Sprintf("%s %q denies what policy %q matches: there is no %s, and parameterNotFoundAction is Deny", m.Kind, m.Binding, m.Policy, m.Params)
}

// Find returns every param of the binding, which has a ref, for a request in a namespace, in the order
// of their names. The policy is evaluated once for
// each. An error denies, or not, as the failure policy says.
func (p *Params) Find(objects Objects, namespace string) ([]*Param, error) {
	namespaced, err := objects.Namespaced(p.Kind)
	switch {
	case err != nil:
		return nil, err
	case !namespaced && p.Ref.Namespace != "":
		return nil, fmt.Errorf("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	case !namespaced:
		namespace = ""
	case p.Ref.Namespace != "":
		namespace = p.Ref.Namespace
	case namespace == "":
		return nil, errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
	}
	var out []*Param
	if p.selector != nil {
		list, err := objects.List(p.Kind, namespace, p.selector)
		if err != nil {
			return nil, err
		}
		for _, object := range list {
			out = append(out, &Param{object})
		}
	} else {
		object, err := objects.Get(p.Kind, namespace, p.Ref.Name)
		switch {
		case err != nil:
			return nil, err
		case object != nil:
			out = append(out, &Param{object})
		}
	}
	if len(out) == 0 && *p.Ref.ParameterNotFoundAction == admissionregistrationv1.DenyAction {
		missing := &NoParamsError{Kind: p.Kind, Namespace: namespace, Name: p.Ref.Name}
		if p.selector != nil {
			missing.Name, missing.Labels = "", p.selector.String()
		}
		return nil, missing
	}
	return out, nil
}

// Param is an object that expressions see as params. Nil is none.
type Param struct{ Object *unstructured.Unstructured }

// Value returns the value of params, nil for none.
func (p *Param) Value() ref.Val {
	if p == nil {
		return nil
	}
	return adapter{}.NativeToValue(p.Object.Object)
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

// Name returns that of the object, with its namespace.
func (p *Param) Name() string {
	if p == nil {
		return ""
	}
	if namespace := p.Object.GetNamespace(); namespace != "" {
		return namespace + "/" + p.Object.GetName()
	}
	return p.Object.GetName()
}
