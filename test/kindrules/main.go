// Kindrules writes the rules that the markers of k8s.io/api state for values of fields: which words a field may have, which fields are
// required, the least and the most of numbers, lengths and formats, by what elements of a list must differ, and of which fields exactly
// one must be set. `make generate` runs it for the version in go.mod.
//
// A line of the table is a field, "Container.imagePullPolicy", or its type for what holds of all fields of a type, and its rules, which
// are separated by spaces. Types of other packages than core/v1 have the package in front.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// unmarked returns the types whose constants are all values that API servers accept, and which have no marker that says so.
func unmarked() []string {
	return []string{
		"ContainerRestartPolicy", "ContainerRestartRuleAction", "ContainerRestartRuleOnExitCodesOperator", "OSName", "PodSELinuxChangePolicy", "RecursiveReadOnlyMode",
		"ResourceResizeRestartPolicy", "autoscaling/v2.HPAScalingPolicyType", "autoscaling/v2.MetricSourceType", "autoscaling/v2.MetricTargetType",
		"autoscaling/v2.ScalingPolicySelect", "flowcontrol/v1.FlowDistinguisherMethodType", "flowcontrol/v1.LimitResponseType",
		"flowcontrol/v1.PriorityLevelEnablement", "flowcontrol/v1.SubjectKind", "admissionregistration/v1.ParameterNotFoundActionType", "meta/v1.LabelSelectorOperator",
		"storage/v1.FSGroupPolicy", "storage/v1.VolumeLifecycleMode", "apps/v1.PersistentVolumeClaimRetentionPolicyType",
	}
}

// repeatable returns the lists whose elements differ by the marker for server-side apply, and of which API servers create objects with equal
// ones all the same.
func repeatable() []string {
	return []string{
		"Container.env", "Container.ports", "EphemeralContainerCommon.env", "EphemeralContainerCommon.ports", "PodSpec.hostAliases", "PodSpec.imagePullSecrets",
		"ServiceAccount.secrets", "admissionregistration/v1.ValidatingAdmissionPolicySpec.variables", "admissionregistration/v1beta1.ValidatingAdmissionPolicySpec.variables",
	}
}

// lists and keys match the markers of lists whose elements differ, and of the keys by which they do; sets have none. A set for server-side
// apply alone may have equal elements when it is created.
var (
	lists = regexp.MustCompile(`^(?:\+k8s:(?:alpha|beta)\(since: ?"[0-9.]+"\)=)?\+(?:listType=map|k8s:(?:listType|unique)=(?:map|set))$`)
	keys  = regexp.MustCompile(`^(?:\+k8s:(?:alpha|beta)\(since: ?"[0-9.]+"\)=)?\+(?:k8s:)?listMapKey=(\w+)$`)
	union = regexp.MustCompile(`^(?:\+k8s:(?:alpha|beta)\(since: ?"[0-9.]+"\)=)?\+k8s:unionMember$`)
)

// simple matches the markers that are rules in themselves, also where the API server compares them with its older validation alone
// (alpha), which says the same. Those that depend on a feature or another field are not among them.
var simple = regexp.MustCompile(`^(?:\+k8s:(?:alpha|beta)\(since: ?"[0-9.]+"\)=)?\+k8s:((?:each(?:Val|Key)=\+k8s:)?(?:required$|(?:minimum|maximum|maxLength|maxBytes|maxItems|format)=.*))`)

// table has the rules of fields, in order, and the values of enumerated types.
type table struct {
	rules  map[string][]string
	unions map[string][]string
	enums  map[string]bool
	values map[string][]string
	// constants are the values of constants, and unknown has the types of which one is not known.
	constants map[string]string
	unknown   map[string]bool
	// types are those of fields.
	types map[string]string
}

func main() {
	output := flag.String("o", "", "the file to write")
	candidates := flag.Bool("candidates", false, "print the types with constants that no marker calls enumerated")
	flag.Parse()
	t := table{map[string][]string{}, map[string][]string{}, map[string]bool{}, map[string][]string{}, map[string]string{}, map[string]bool{}, map[string]string{}}
	for _, module := range []string{"k8s.io/api", "k8s.io/apimachinery"} {
		out, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output() //nolint:gosec // the two modules above
		if err != nil {
			log.Fatal(err)
		}
		pattern, root := "*/v*", strings.TrimSpace(string(out))
		if module == "k8s.io/apimachinery" {
			pattern, root = "meta/v1", filepath.Join(root, "pkg/apis")
		}
		dirs, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			log.Fatal(err)
		}
		for _, dir := range dirs {
			name, _ := filepath.Rel(root, dir)
			if !strings.HasPrefix(name, "extensions/") && !strings.Contains(name, "alpha") {
				t.read(dir, strings.TrimPrefix(filepath.ToSlash(name)+".", "core/v1."))
			}
		}
	}
	if *candidates {
		for _, name := range slices.Sorted(maps.Keys(t.values)) {
			if !t.enums[name] {
				fmt.Println(name, t.values[name])
			}
		}
		return
	}
	if err := os.WriteFile(*output, []byte(t.String()), 0o644); err != nil { //nolint:gosec // a source file
		log.Fatal(err)
	}
}

// read reads the package in a directory. Prefix is what its types have in front.
func (t *table) read(dir, prefix string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range files {
		if base := filepath.Base(name); strings.HasSuffix(base, "_test.go") || strings.HasPrefix(base, "zz_") || strings.HasSuffix(base, ".pb.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			log.Fatal(err)
		}
		for _, declaration := range file.Decls {
			if d, ok := declaration.(*ast.GenDecl); ok {
				t.declaration(prefix, d)
			}
		}
	}
}

func (t *table) declaration(prefix string, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			name := prefix + spec.Name.Name
			for _, marker := range markers(cmp.Or(spec.Doc, d.Doc)) {
				t.enums[name] = t.enums[name] || marker == "+enum" || strings.HasSuffix(marker, "+k8s:enum")
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range s.Fields.List {
					t.field(prefix, name, field)
				}
			}
		case *ast.ValueSpec:
			for i, value := range spec.Values {
				of, typed := spec.Type.(*ast.Ident)
				if call, ok := value.(*ast.CallExpr); ok && spec.Type == nil && len(call.Args) == 1 {
					of, typed = call.Fun.(*ast.Ident)
					value = call.Args[0]
				}
				word, known := t.constant(prefix, value)
				t.constants[prefix+spec.Names[i].Name] = word
				if typed && d.Tok == token.CONST {
					t.values[prefix+of.Name] = append(t.values[prefix+of.Name], word)
					t.unknown[prefix+of.Name] = t.unknown[prefix+of.Name] || !known
				}
			}
		}
	}
}

// constant returns the value of a text.
func (t *table) constant(prefix string, value ast.Expr) (word string, known bool) {
	switch value := value.(type) {
	case *ast.BasicLit:
		word, err := strconv.Unquote(value.Value)
		return word, err == nil
	case *ast.Ident:
		word, known = t.constants[prefix+value.Name]
	case *ast.SelectorExpr:
		word, known = t.constants[typeName(prefix, value)]
	}
	return word, known
}

func (t *table) field(prefix, of string, field *ast.Field) {
	if field.Tag == nil {
		return
	}
	name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json"), ",")
	if name == "" {
		return
	}
	key := of + "." + name
	var rules []string
	hasDefault, differ, by := false, false, []string(nil)
	for _, marker := range markers(field.Doc) {
		differ = differ || lists.MatchString(marker)
		if of := keys.FindStringSubmatch(marker); of != nil && !slices.Contains(by, of[1]) {
			by = append(by, of[1])
		}
		if union.MatchString(marker) {
			t.unions[of] = append(t.unions[of], name)
		}
		hasDefault = hasDefault || strings.HasPrefix(marker, "+default=")
		if rule := simple.FindStringSubmatch(marker); rule != nil {
			rules = append(rules, strings.ReplaceAll(strings.ReplaceAll(rule[1], "+k8s:", ""), `"`, ""))
		}
	}
	rules = slices.DeleteFunc(rules, func(rule string) bool { return rule == "required" && hasDefault })
	if differ && !slices.Contains(repeatable(), key) && !strings.HasSuffix(of, "Status") { // API servers reset the status
		rules = append(rules, strings.TrimSuffix("differ="+strings.Join(by, ","), "="))
	}
	if len(rules) > 0 && prefix != "meta/v1." { // metadata has rules of its own in each place
		t.rules[key] = rules
	}
	if name := typeName(prefix, field.Type); name != "" {
		t.types[key] = name
	}
}

// markers returns the markers of a comment, also of the paragraphs in front of the last one.
func markers(doc *ast.CommentGroup) []string {
	var found []string
	if doc == nil {
		return nil
	}
	for _, comment := range doc.List {
		text := strings.TrimSpace(strings.TrimPrefix(comment.Text, "//"))
		if strings.HasPrefix(text, "+") {
			text, _, _ = strings.Cut(text, " #")
			found = append(found, text)
		}
	}
	return found
}

// typeName returns the name of the type of a field, its elements or what it points to.
func typeName(prefix string, of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return typeName(prefix, of.X)
	case *ast.ArrayType:
		return typeName(prefix, of.Elt)
	case *ast.Ident:
		return prefix + of.Name
	case *ast.SelectorExpr:
		switch fmt.Sprint(of.X) {
		case "v1", "corev1":
			return of.Sel.Name
		case "metav1":
			return "meta/v1." + of.Sel.Name
		}
	}
	return ""
}

// String returns the table as text.
func (t *table) String() string {
	used := map[string]bool{}
	for _, name := range t.types {
		used[name] = true
	}
	for _, name := range unmarked() {
		if len(t.values[name]) == 0 {
			log.Fatalf("%s has no constants", name)
		}
		t.enums[name] = true
	}
	lines := []string{}
	for key, rules := range t.rules {
		lines = append(lines, key+" "+strings.Join(rules, " "))
	}
	for name, members := range t.unions {
		lines = append(lines, name+" one="+strings.Join(members, ","))
	}
	for name := range t.enums {
		if used[name] && len(t.values[name]) > 0 && !t.unknown[name] {
			values := slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(t.values[name]))), func(v string) bool { return v == "" })
			lines = append(lines, name+" enum="+strings.Join(values, ","))
		}
	}
	slices.Sort(lines)
	return "# Code generated by test/kindrules from the markers of k8s.io/api. DO NOT EDIT.\n" + strings.Join(lines, "\n") + "\n"
}
