package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/parser"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/typecheck"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/kinds/builtin"
	"github.com/gatehouse-dev/gatehouse/webhooks/mutation"
)

// lintMutating lints one mutating policy: what it matches, its conditions and variables as those of any policy, and the fields that its
// apply configurations set.
func (l *linter) lintMutating(d document, p *mutation.Policy) {
	s := &subject{document: d, linter: l, spec: &admissionregistrationv1.ValidatingAdmissionPolicySpec{
		ParamKind: p.Spec.ParamKind, MatchConstraints: p.Spec.MatchConstraints, MatchConditions: p.Spec.MatchConditions,
		FailurePolicy: new(admissionregistrationv1.Fail),
	}}
	for _, v := range p.Spec.Variables {
		s.spec.Variables = append(s.spec.Variables, admissionregistrationv1.Variable{Name: v.Name, Expression: v.Expression})
	}
	s.read()
	s.lintMatching()
	s.lintTypes()
	s.lintNullObjects()
	s.lintNamespaceObjects()
	s.lintOptionalFields()
	s.lintSchemas()
	if at := ruleFor(s.spec.MatchConstraints, "pods/resize", "pods/*", "*/resize", "*/*"); at != nil {
		s.warn(Resize, at, "match pods alone, or exclude pods/resize by excludeResourceRules",
			"it matches pods/resize: a webhook's change of metadata is kept there, and one that adds a container makes the client's valid resize fail")
	}
	for i := range p.Spec.Mutations {
		m := &p.Spec.Mutations[i]
		if m.JSONPatch != nil {
			s.lintVolumes(field.NewPath("spec", "mutations").Index(i).Child("jsonPatch", "expression"), m.JSONPatch.Expression)
		}
		if m.ApplyConfiguration == nil {
			continue
		}
		parsed, err := l.checker.Parse(m.ApplyConfiguration.Expression)
		if err != nil {
			continue // it does not compile
		}
		e := &expression{
			path: field.NewPath("spec", "mutations").Index(i).Child("applyConfiguration", "expression"),
			text: m.ApplyConfiguration.Expression, parsed: parsed,
		}
		walk(parsed.NativeRep().Expr(), func(part ast.Expr) {
			if part.Kind() == ast.StructKind {
				s.lintFields(e, part)
			}
		})
	}
}

// lintVolumes reports a JSON patch that replaces all volumes of pods without a look at them.
func (s *subject) lintVolumes(at *field.Path, text string) {
	parsed, err := s.linter.checker.Parse(text)
	if err != nil || !slices.ContainsFunc(s.kinds, func(k typecheck.Kind) bool { return k.Group == "" && k.Kind == "Pod" }) {
		return
	}
	e := &expression{path: at, text: text, parsed: parsed}
	reads := func(part ast.Expr) bool {
		_, name, _, ok := selection(part)
		return ok && name == "volumes" && root(part) == "object"
	}
	if contains(parsed.NativeRep().Expr(), reads) || slices.ContainsFunc(s.expressions, func(other *expression) bool {
		return contains(other.parsed.NativeRep().Expr(), reads)
	}) {
		return
	}
	walk(parsed.NativeRep().Expr(), func(part ast.Expr) {
		if part.Kind() != ast.StructKind || part.AsStruct().TypeName() != "JSONPatch" {
			return
		}
		fields := map[string]string{}
		for _, entry := range part.AsStruct().Fields() {
			fields[entry.AsStructField().Name()], _ = literal(entry.AsStructField().Value())
		}
		if fields["path"] == "/spec/volumes" && fields["op"] != "test" {
			s.reportAt(TokenVolume, e, part.ID(), `add one volume, with the path "/spec/volumes/-"`,
				"it replaces all volumes, and a pod without the volume of its service account token is refused")
		}
	})
}

// lintSchemas reports resources of which no schema is known.
func (s *subject) lintSchemas() {
	if s.spec.MatchConstraints == nil {
		return
	}
	for i, rule := range s.spec.MatchConstraints.ResourceRules {
		for k, group := range rule.APIGroups {
			if group != "*" && len(s.linter.schemas.Versions(group)) == 0 {
				s.warn(UnknownResource, field.NewPath("spec", "matchConstraints", "resourceRules").Index(i).Child("apiGroups").Index(k),
					"put the CustomResourceDefinition into the directory", "no schema of API group %s is known, without which its objects are refused, whatever failurePolicy says", quoted(group))
			}
		}
	}
}

// lintFields reports the fields of an Object{…} in an expression that are atomic in the schema of a kind, or that no kind has.
func (s *subject) lintFields(e *expression, part ast.Expr) {
	root, rest, _ := strings.Cut(part.AsStruct().TypeName(), ".")
	if root != "Object" {
		return
	}
	for _, entry := range part.AsStruct().Fields() {
		member := entry.AsStructField()
		path := strings.Split(strings.TrimPrefix(rest+"."+member.Name(), "."), ".")
		var atomic, unknown, siblings []string
		pointer := ""
		for i := range s.kinds {
			found := resolveField(s.linter.converter(s.kinds[i].GroupVersionKind), s.kinds[i].GroupVersionKind, path)
			switch {
			case found.atomic:
				atomic, pointer = append(atomic, s.kinds[i].String()), found.pointer
			case found.siblings != nil:
				unknown, siblings = append(unknown, s.kinds[i].String()), found.siblings
			}
		}
		if len(unknown) > 0 && len(unknown) == len(s.kinds) && s.allKinds {
			s.reportAt(Type, e, entry.ID(), diagnostic.DidYouMean(member.Name(), siblings...),
				"for %s: there is no field %s in %s", strings.Join(unknown, ", "), quoted(member.Name()), part.AsStruct().TypeName())
		}
		if len(atomic) == 0 {
			continue
		}
		value, err := parser.Unparse(member.Value(), e.parsed.NativeRep().SourceInfo())
		if err != nil {
			value = "…"
		}
		hint := fmt.Sprintf(`use JSONPatch here, patchType JSONPatch with jsonPatch.expression: [JSONPatch{op: "add", path: "%s", value: %s}]`, pointer, strings.Join(strings.Fields(value), " "))
		if strings.Contains(pointer, "/0/") {
			hint += ", with an operation for each index"
		}
		s.reportAt(AtomicField, e, entry.ID(), hint, "for %s: %s is atomic, and an ApplyConfiguration that sets it fails", strings.Join(atomic, ", "), strings.Join(path, "."))
	}
}

// converter returns the schema of a kind, nil if none is known.
func (l *linter) converter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	if builtin.Scheme().Recognizes(kind) {
		return builtin.TypeConverter()
	}
	return l.custom.TypeConverter(kind)
}

// resolvedField is a field of a kind.
type resolvedField struct {
	// pointer is its JSON pointer, with the first element of each list on the way.
	pointer string
	// atomic reports whether it is an atomic list, map or struct.
	atomic bool
	// siblings are the fields that there are, sorted, if the kind does not have it.
	siblings []string
}

// resolveField finds a field of a kind. Without a schema nothing is known of it.
func resolveField(converter managedfields.TypeConverter, kind schema.GroupVersionKind, path []string) (out resolvedField) {
	if converter == nil {
		return out
	}
	stub := &unstructured.Unstructured{}
	stub.SetGroupVersionKind(kind)
	value, err := converter.ObjectToTyped(stub)
	if err != nil {
		return out
	}
	at, known := value.Schema().Resolve(value.TypeRef())
	for i, name := range path {
		for known && at.List != nil && at.Map == nil {
			out.pointer += "/0"
			at, known = value.Schema().Resolve(at.List.ElementType)
		}
		if !known || at.Map == nil {
			return out
		}
		of := at.Map.ElementType
		if found, ok := at.FindField(name); ok {
			of = found.Type
		} else if of == (smdschema.TypeRef{}) {
			for _, f := range at.Fields {
				out.siblings = append(out.siblings, f.Name)
			}
			if i < len(path)-1 {
				out.siblings = nil // it is reported where it is set
			}
			return out
		}
		at, known = value.Schema().Resolve(of)
		out.pointer += "/" + name
	}
	if known && at.List != nil && at.Map == nil && at.List.ElementRelationship != smdschema.Atomic {
		at, known = value.Schema().Resolve(at.List.ElementType) // which may be an atomic struct, as in imagePullSecrets
	}
	out.atomic = known && at.Scalar == nil &&
		(at.List != nil && at.List.ElementRelationship == smdschema.Atomic || at.Map != nil && at.Map.ElementRelationship == smdschema.Atomic)
	return out
}
