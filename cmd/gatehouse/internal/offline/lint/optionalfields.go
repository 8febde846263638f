package lint

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/typecheck"
)

// access is a field of a structure, and a key if it is a map.
type access struct{ structure, field, key string }

// shown returns the field as the expression has it, or by its structure if that is too long for a message.
func (a access) shown(written string) string {
	const longest = 100 // bytes
	if written == "" || len(written) > longest {
		return a.structure + "." + a.field
	}
	return written
}

// anyKey stands for all keys of a map.
const anyKey = "*"

// lintOptionalFields reports fields of pods and of metadata that are read without a test for their presence, if failurePolicy is
// Fail. A test anywhere in the expression, the conditions or the variables counts: its author knows that the field is optional.
func (s *subject) lintOptionalFields() {
	if *s.spec.FailurePolicy != admissionregistrationv1.Fail || len(s.kinds) == 0 {
		return
	}
	var shared []access
	for _, e := range s.expressions {
		if e.isPrerequisite() {
			shared = append(shared, testedAccesses(e)...)
		}
	}
	for _, e := range s.expressions {
		if e.role == message {
			continue // It falls back to the message.
		}
		tested := slices.Concat(shared, testedAccesses(e))
		seen := slices.Clone(tested)
		for _, checked := range e.kinds {
			walk(checked.AST.Expr(), func(part ast.Expr) {
				a, ok := reads(checked, part)
				if !ok || slices.Contains(seen, a) || slices.Contains(seen, access{a.structure, a.field, anyKey}) {
					return
				}
				seen = append(seen, a)
				if whole := (access{structure: a.structure, field: a.field}); a.key != "" {
					absent := mayBeAbsent(holderOf(checked, part), a.field) && !slices.Contains(tested, whole)
					seen = append(seen, whole)
					s.optionalKey(e, checked, part, a, absent)
					return
				}
				s.optionalField(e, checked, part, a)
			})
		}
	}
}

func (s *subject) optionalField(e *expression, checked typecheck.Checked, part ast.Expr, a access) {
	written := unparse(checked, part)
	hint := "test it with has(" + written + ")"
	if i := strings.LastIndexByte(written, '.'); i > 0 {
		hint += ", or write " + written[:i] + ".?" + written[i+1:] + " with orValue"
	}
	s.reportAt(OptionalField, e, part.ID(), hint, "%s may be absent: then the expression fails, and the request is refused", a.shown(written))
}

// optionalKey reports a key of a map, which may be absent itself.
func (s *subject) optionalKey(e *expression, checked typecheck.Checked, part ast.Expr, a access, absent bool) {
	holder := unparse(checked, mapOf(part))
	written := holder
	what := "may be without key " + quoted(a.key)
	if i := strings.LastIndexByte(holder, '.'); absent && i > 0 {
		what = "may be absent or " + strings.TrimPrefix(what, "may be ")
		holder = holder[:i] + ".?" + holder[i+1:]
	}
	s.reportAt(OptionalField, e, part.ID(), "write "+holder+"[?"+quoted(a.key)+"].orValue(…)",
		"%s %s: then the expression fails, and the request is refused", a.shown(written), what)
}

// reads returns the optional field or key that a part of an expression reads.
func reads(c typecheck.Checked, part ast.Expr) (access, bool) {
	switch {
	case part.Kind() == ast.SelectKind && !part.AsSelect().IsTestOnly():
		operand, name := part.AsSelect().Operand(), part.AsSelect().FieldName()
		if isOptional(c, operand) {
			return access{}, false
		}
		if a, ok := holder(c, operand); ok {
			a.key = name
			return a, true
		}
		t := c.Structure(operand)
		if t == nil || !isOfObject(operand) || !mayBeAbsent(t, name) || name == "labels" && isOfTemplate(operand) {
			return access{}, false
		}
		return access{structure: t.Name, field: name}, true
	case isCall(part, operators.Index):
		args := part.AsCall().Args()
		key, ok := literal(args[1])
		if !ok || isOptional(c, args[0]) {
			return access{}, false
		}
		if a, found := holder(c, args[0]); found {
			a.key = key
			return a, true
		}
	}
	return access{}, false
}

func isOptional(c typecheck.Checked, e ast.Expr) bool {
	t := c.AST.GetType(e.ID())
	return t != nil && t.Kind() == types.OpaqueKind
}

// holder returns the field that a part of an expression is, if it is a map.
func holder(c typecheck.Checked, e ast.Expr) (access, bool) {
	operand, name, _, ok := selection(e)
	if !ok {
		return access{}, false
	}
	t := c.Structure(operand)
	if t == nil || !isKnownStructure(t.Name) || !isOfObject(operand) {
		return access{}, false
	}
	if f := t.Fields[name]; f.Type == nil || !f.Type.Map {
		return access{}, false
	}
	return access{structure: t.Name, field: name}, true
}

// isOfTemplate reports whether a part of an expression is the metadata of a pod template, which always has labels.
func isOfTemplate(e ast.Expr) bool {
	if e.Kind() != ast.SelectKind || e.AsSelect().FieldName() != "metadata" {
		return false
	}
	template := e.AsSelect().Operand()
	return template.Kind() == ast.SelectKind && template.AsSelect().FieldName() == "template"
}

// mapOf returns the map that a part of an expression reads a key of.
func mapOf(part ast.Expr) ast.Expr {
	if part.Kind() == ast.SelectKind {
		return part.AsSelect().Operand()
	}
	return part.AsCall().Args()[0]
}

// holderOf returns the structure with the map that a part of an expression reads a key of, and nil if that map is always there.
func holderOf(c typecheck.Checked, part ast.Expr) *typecheck.Type {
	e := mapOf(part)
	if e.Kind() != ast.SelectKind || e.AsSelect().FieldName() == "labels" && isOfTemplate(e.AsSelect().Operand()) {
		return nil
	}
	return c.Structure(e.AsSelect().Operand())
}

// isOfObject reports whether a part of an expression may be of the object.
func isOfObject(e ast.Expr) bool {
	return !slices.Contains([]string{plugincel.ParamsVarName, plugincel.NamespaceVarName, plugincel.RequestVarName}, root(e))
}

// testedAccesses returns the fields and keys whose presence an expression tests.
func testedAccesses(e *expression) []access {
	var out []access
	for _, c := range e.kinds {
		walk(c.AST.Expr(), func(part ast.Expr) {
			switch {
			case part.Kind() == ast.SelectKind && part.AsSelect().IsTestOnly():
				out = append(out, member(c, part.AsSelect().Operand(), part.AsSelect().FieldName())...)
			case isCall(part, operators.OptSelect), isCall(part, operators.OptIndex):
				if name, ok := literal(part.AsCall().Args()[1]); ok {
					out = append(out, member(c, part.AsCall().Args()[0], name)...)
				} else if a, ok := holder(c, part.AsCall().Args()[0]); ok {
					out = append(out, access{a.structure, a.field, anyKey})
				}
			case isCall(part, operators.In):
				if a, ok := holder(c, part.AsCall().Args()[1]); ok {
					a.key, ok = literal(part.AsCall().Args()[0])
					if !ok {
						a.key = anyKey
					}
					out = append(out, a)
				}
			case part.Kind() == ast.ComprehensionKind:
				if a, ok := holder(c, part.AsComprehension().IterRange()); ok {
					out = append(out, access{a.structure, a.field, anyKey})
				}
			}
		})
	}
	return out
}

// member returns the field of a structure, or the key of a map, that is tested.
func member(c typecheck.Checked, operand ast.Expr, name string) []access {
	if a, ok := holder(c, operand); ok {
		a.key = name
		return []access{a}
	}
	if t := c.Structure(operand); t != nil {
		return []access{{structure: t.Name, field: name}}
	}
	return nil
}

// isKnownStructure reports whether it is known which fields of a structure are always there.
func isKnownStructure(structure string) bool {
	switch strings.TrimPrefix(structure, "core/v1.") {
	case "meta/v1.ObjectMeta", "PodSpec", "Container", "EphemeralContainer", "EphemeralContainerCommon", "SecurityContext",
		"PodSecurityContext", "Capabilities", "WindowsSecurityContextOptions", "ResourceRequirements", "EnvVar", "Affinity", "Lifecycle":
		return true
	default:
		return false
	}
}

// mayBeAbsent reports whether an optional field may be absent in a request to a policy: neither defaults nor admission plug-ins of
// the API server set it, and its validation does not require it.
func mayBeAbsent(t *typecheck.Type, name string) bool {
	if t == nil || !isKnownStructure(t.Name) || !t.Fields[name].Optional {
		return false
	}
	var always []string
	switch strings.TrimPrefix(t.Name, "core/v1.") {
	case "meta/v1.ObjectMeta":
		return slices.Contains([]string{"labels", "annotations", "ownerReferences", "finalizers", "deletionTimestamp"}, name)
	case "PodSpec":
		always = []string{
			"restartPolicy", "dnsPolicy", "schedulerName", "terminationGracePeriodSeconds", "securityContext", "serviceAccountName",
			"serviceAccount", "enableServiceLinks", "preemptionPolicy", "priority", "tolerations",
		}
	case "Container", "EphemeralContainer", "EphemeralContainerCommon":
		always = []string{"image", "imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy"}
	case "SecurityContext":
		always = []string{"procMount"}
	}
	return !slices.Contains(always, name)
}
