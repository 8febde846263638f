package reference

import (
	"fmt"
	"go/ast"
	"reflect"
	"slices"
	"strings"
)

// AddKinds adds a page for each kind, from the Go types of a directory. A type is a kind if it has TypeMeta and is no list.
func (p Pages) AddKinds(dir string) error {
	_, files, err := goFiles(dir)
	if err != nil {
		return err
	}
	k := kinds{types: map[string]*ast.TypeSpec{}, docs: map[string]*ast.CommentGroup{}, values: map[string][]string{}}
	for _, file := range files {
		for _, declaration := range file.Decls {
			k.declare(declaration)
		}
	}
	var list strings.Builder
	list.WriteString("# Kinds\n\n`apiVersion` of all is `gatehouse.dev/v1alpha1`. `kubectl explain KIND` shows the same text for those with a\nCustomResourceDefinition.\n\n")
	for _, name := range k.names {
		fields, is := k.types[name].Type.(*ast.StructType)
		if !is || strings.HasSuffix(name, "List") || !slices.ContainsFunc(fields.Fields.List, func(f *ast.Field) bool { return len(f.Names) == 0 && typeName(f.Type) == "metav1.TypeMeta" }) {
			continue
		}
		text := prose(k.docs[name])
		first, _, _ := strings.Cut(strings.ReplaceAll(text, "\n", " "), ". ")
		fmt.Fprintf(&list, "- [%s](%s.md): %s.\n", name, strings.ToLower(name), strings.TrimSuffix(strings.TrimPrefix(first, name+" "), "."))
		var b strings.Builder
		fmt.Fprintf(&b, "# %s\n\n%s\n\n## Fields\n\n", name, text)
		k.fields(&b, name, "", []string{name})
		p.add("kinds/"+strings.ToLower(name)+".md", b.String())
	}
	p.add("kinds/README.md", list.String())
	return nil
}

// kinds are the types of the kinds.
type kinds struct {
	names  []string
	types  map[string]*ast.TypeSpec
	docs   map[string]*ast.CommentGroup
	values map[string][]string // the constants of a type of strings
}

func (k *kinds) declare(declaration ast.Decl) {
	group, is := declaration.(*ast.GenDecl)
	if !is {
		return
	}
	for _, spec := range group.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			k.names = append(k.names, s.Name.Name)
			k.types[s.Name.Name] = s
			k.docs[s.Name.Name] = group.Doc
			if s.Doc != nil {
				k.docs[s.Name.Name] = s.Doc
			}
		case *ast.ValueSpec:
			if s.Type != nil && len(s.Values) > 0 {
				text := literal(s.Values[0])
				meaning := strings.TrimPrefix(prose(s.Doc, s.Comment), s.Names[0].Name+" ")
				if text != "" {
					k.values[typeName(s.Type)] = append(k.values[typeName(s.Type)], fmt.Sprintf("`%s` %s", text, meaning))
				}
			}
		}
	}
}

// fields writes the fields of a type as a list. The names of types above it end a recursion.
func (k *kinds) fields(b *strings.Builder, name, margin string, above []string) {
	structure, is := k.types[name].Type.(*ast.StructType)
	if !is {
		return
	}
	for _, field := range structure.Fields.List {
		of := element(field.Type)
		tag := ""
		if field.Tag != nil {
			tag = reflect.StructTag(strings.Trim(field.Tag.Value, "`")).Get("json")
		}
		key, options, _ := strings.Cut(tag, ",")
		if len(field.Names) == 0 && key == "" {
			if of == "metav1.TypeMeta" {
				continue
			}
			if k.types[of] != nil {
				k.fields(b, of, margin, above)
			}
			continue
		}
		if key == "-" || key == "status" && margin == "" && strings.HasSuffix(of, "Status") && k.types[of] == nil {
			continue
		}
		needed := ", required"
		if strings.Contains(options, "omit") || field.Doc != nil && hasMarker(field.Doc, "+optional") || key == "metadata" {
			needed = ""
		}
		text := prose(field.Doc, field.Comment)
		if len(field.Names) > 0 {
			text = strings.TrimPrefix(text, field.Names[0].Name+" ")
		}
		fmt.Fprintf(b, "%s- **`%s`** (%s%s)", margin, key, shape(field.Type), needed)
		if text != "" {
			fmt.Fprintf(b, ": %s", indent(text, margin+"  "))
		}
		b.WriteByte('\n')
		for _, rule := range rules(field.Doc) {
			fmt.Fprintf(b, "%s  %s\n", margin, rule)
		}
		for _, value := range k.values[of] {
			fmt.Fprintf(b, "%s  - %s\n", margin, indent(value, margin+"    "))
		}
		if k.types[of] != nil && !slices.Contains(above, of) {
			k.fields(b, of, margin+"  ", append(slices.Clone(above), of))
		}
	}
}

func hasMarker(group *ast.CommentGroup, marker string) bool {
	return slices.ContainsFunc(group.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(strings.TrimSpace(strings.TrimPrefix(c.Text, "//")), marker)
	})
}

// rules are the markers of a field that say what values it may have.
func rules(group *ast.CommentGroup) (out []string) {
	if group == nil {
		return nil
	}
	for _, comment := range group.List {
		text := strings.TrimSpace(strings.TrimPrefix(comment.Text, "//"))
		if value, is := strings.CutPrefix(text, "+kubebuilder:default="); is {
			out = append(out, "Default: `"+value+"`.")
		}
		rule, is := strings.CutPrefix(text, "+kubebuilder:validation:")
		name, value, _ := strings.Cut(rule, "=")
		if said := map[string]string{"MinItems=1": "At least one entry.", "MinLength=1": "It may not be empty."}[rule]; is && said != "" {
			out = append(out, said)
			continue
		}
		said := map[string]string{
			"Enum": "One of: `%s`.", "Minimum": "At least %s.", "Maximum": "At most %s.", "MaxItems": "At most %s entries.", "MinItems": "At least %s entries.",
			"MaxLength": "At most %s characters.", "MinLength": "At least %s characters.", "MaxProperties": "At most %s entries.", "Pattern": "It must match `%s`.",
		}[name]
		if is && said != "" {
			out = append(out, fmt.Sprintf(said, strings.ReplaceAll(strings.Trim(value, "`"), ";", "`, `")))
		}
	}
	return out
}

// typeName is the name of a type with its package.
func typeName(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return typeName(e.X) + "." + e.Sel.Name
	}
	return ""
}

// element is the name of the type of the elements of lists, maps and pointers.
func element(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return element(e.X)
	case *ast.ArrayType:
		return element(e.Elt)
	case *ast.MapType:
		return element(e.Value)
	}
	return typeName(expr)
}

// shape is a type as a user knows it.
func shape(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return shape(e.X)
	case *ast.ArrayType:
		if typeName(e.Elt) == "byte" {
			return "bytes in base64"
		}
		return "list of " + shape(e.Elt)
	case *ast.MapType:
		return "map of " + shape(e.Value)
	}
	name := typeName(expr)
	switch name {
	case "bool":
		return "boolean"
	case "int", "int32", "int64":
		return "integer"
	case "metav1.Duration":
		return "duration"
	case "metav1.Time":
		return "time"
	case "runtime.RawExtension":
		return "any object"
	}
	return name[strings.LastIndex(name, ".")+1:]
}
