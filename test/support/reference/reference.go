// Package reference writes the pages of docs/reference from what they are about: the commands, the Go types of the kinds, the
// declarations of metrics, calls of the logger, conditions, the codes of lint and the values of the chart.
package reference

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Pages are the texts of pages, by their path below docs/reference.
type Pages map[string]string

// completion is cobra's link to its own command.
var completion = regexp.MustCompile(`(?m)^\* \[gatehouse (completion|help)\].*\n?`)

const generated = "<!-- Written by \"make generate\". -->\n\n"

// add adds a page, whose text ends with one line break.
func (p Pages) add(name, text string) { p[name] = generated + strings.TrimRight(text, "\n") + "\n" }

// AddCommands adds a page for each command, and their list.
func (p Pages) AddCommands(root *cobra.Command) error {
	var list strings.Builder
	list.WriteString("# Commands\n\n`gatehouse COMMAND --help` shows the same text.\n\n")
	var add func(*cobra.Command) error
	add = func(cmd *cobra.Command) error {
		cmd.DisableAutoGenTag = true
		cmd.Long = fenced(cmd.Long)
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "_") + ".md"
		var page bytes.Buffer
		if err := doc.GenMarkdownCustom(cmd, &page, func(link string) string { return link }); err != nil {
			return err
		}
		// A page has one title, and its sections are below it.
		text := strings.NewReplacer("\n### ", "\n## ").Replace("\n" + strings.TrimSpace(page.String()))
		text = completion.ReplaceAllString(text, "")
		p.add("commands/"+name, strings.Replace(strings.TrimPrefix(text, "\n"), "## ", "# ", 1))
		fmt.Fprintf(&list, "- [`%s`](%s): %s\n", cmd.CommandPath(), name, cmd.Short)
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() && sub.Name() != "help" && sub.Name() != "completion" {
				if err := add(sub); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := add(root); err != nil {
		return err
	}
	p.add("commands/README.md", list.String())
	return nil
}

// fenced returns a text with what is indented in it, examples and lists, as blocks, whose lines Markdown does not join.
func fenced(text string) string {
	text = indented.ReplaceAllStringFunc(text, func(block string) string {
		return "\n```text\n" + strings.ReplaceAll(strings.TrimPrefix(strings.Trim(block, "\n"), "  "), "\n  ", "\n") + "\n```\n"
	})
	return strings.ReplaceAll(text, "\n\n\n", "\n\n")
}

var indented = regexp.MustCompile(`(?m)(?:^  .*\n?)+`)

// goFiles parses the Go files of directories and all below, without tests and generated files, in the order of their paths.
func goFiles(dirs ...string) (*token.FileSet, []*ast.File, error) {
	set := token.NewFileSet()
	var files []*ast.File
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(entry.Name(), "zz_") {
				return err
			}
			file, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
			files = append(files, file)
			return err
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return set, files, nil
}

// literal is the text of a string literal or a sum of them, empty for all else.
func literal(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return text
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return literal(e.X) + literal(e.Y)
		}
	}
	return ""
}

// prose is a comment as a paragraph of Markdown, without markers of generators.
func prose(comments ...*ast.CommentGroup) string {
	for _, group := range comments {
		if group == nil {
			continue
		}
		var lines []string
		for line := range strings.Lines(group.Text()) {
			if !strings.HasPrefix(line, "+") {
				lines = append(lines, strings.TrimRight(line, "\n"))
			}
		}
		if text := strings.TrimSpace(strings.Join(lines, "\n")); text != "" {
			return escape(text)
		}
	}
	return ""
}

// escape keeps Markdown from taking what looks like HTML for it.
func escape(text string) string { return strings.NewReplacer("<", "&lt;", "*", "\\*").Replace(text) }

// indent indents all lines but the first.
func indent(text, by string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\n", "\n"+by), "\n"+by+"\n", "\n\n")
}

// LintCode is a code of lint.
type LintCode struct{ Code, Explanation string }

// AddLintCodes adds the page of the codes of lint.
func (p Pages) AddLintCodes(codes []LintCode) {
	var b strings.Builder
	b.WriteString("# Codes of lint\n\n`gatehouse lint --explain CODE` shows the same text.\n")
	for _, c := range codes {
		title, rest, _ := strings.Cut(c.Explanation, "\n")
		_, title, _ = strings.Cut(title, ": ")
		before, after, _ := strings.Cut(strings.TrimSpace(rest), "Example:")
		example, remedy, _ := strings.Cut(after, "What to do:")
		example = strings.TrimRight(strings.ReplaceAll(strings.TrimLeft(example, "\n"), "\n  ", "\n"), "\n ")
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n%s\n\n```yaml\n%s\n```\n\n%s\n", c.Code, escape(strings.TrimSuffix(title, ".")), escape(strings.TrimSpace(before)), strings.TrimPrefix(example, "  "), escape(strings.TrimSpace(remedy)))
	}
	p.add("lint-codes.md", b.String())
}

// AddConditions adds the page of the conditions of custom resources, from the constants of a Go file: types end with "Condition",
// reasons with "Reason".
func (p Pages) AddConditions(file string) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	sections := map[string]*strings.Builder{"Condition": {}, "Reason": {}}
	for _, declaration := range parsed.Decls {
		group, is := declaration.(*ast.GenDecl)
		if !is || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			value := spec.(*ast.ValueSpec) //nolint:forcetypeassert // what a declaration of constants has
			for suffix, b := range sections {
				if name := value.Names[0].Name; strings.HasSuffix(name, suffix) {
					text := strings.TrimPrefix(prose(value.Doc, value.Comment), name+" is ")
					fmt.Fprintf(b, "- **`%s`** is %s\n", literal(value.Values[0]), indent(text, "  "))
				}
			}
		}
	}
	p.add("conditions.md", "# Conditions of custom resources\n\n`kubectl get` shows their status, `kubectl describe` their messages.\n\n## Types\n\n"+
		sections["Condition"].String()+"\n## Reasons\n\n"+sections["Reason"].String())
	return nil
}

// Compare returns an error that lists the pages that differ from the files of a directory, which has no others.
func (p Pages) Compare(dir string) error {
	found := map[string]bool{}
	var differ []string
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name) //nolint:gosec // pages of this repository
		found[filepath.ToSlash(relative)] = true
		if p[filepath.ToSlash(relative)] != string(text) {
			differ = append(differ, relative)
		}
		return err
	})
	if err != nil {
		return err
	}
	for name := range p {
		if !found[name] {
			differ = append(differ, name)
		}
	}
	slices.Sort(differ)
	if len(differ) > 0 {
		return fmt.Errorf("not as the source has it: %s (hint: make generate)", strings.Join(differ, ", "))
	}
	return nil
}

// Write replaces a directory by the pages.
func (p Pages) Write(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(p)) {
		file := filepath.Join(dir, filepath.FromSlash(path.Clean(name)))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // a directory of this repository
			return err
		}
		if err := os.WriteFile(file, []byte(p[name]), 0o644); err != nil { //nolint:gosec // documentation
			return err
		}
	}
	return nil
}
