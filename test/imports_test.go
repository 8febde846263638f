package test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/gatehouse-dev/gatehouse"

// rule forbids packages of this module to import, or call, what they must not know.
type rule struct {
	// from are directories of the module; "" is all of it. What is below belongs to it, unless it is among the
	// exceptions.
	from, except []string
	// tests reports whether test files are bound too.
	tests bool
	// imports are import paths; what is below is forbidden too. A path that begins with "/" is one of this module.
	imports []string
	// allowed are import paths below those that are not forbidden.
	allowed []string
	// calls are functions of the standard library, as "time.Now".
	calls []string
	// methods are methods of contexts that may not be called, as "Value".
	methods []string
	// names are parts of names that may not be declared or used, in lower case.
	names  []string
	reason string
}

// rules is the architecture. Imports point downwards only: cmd, webhooks, the codec and the three endpoints, and what
// these are made of.
var rules = slices.Concat(layers, endpoints(), families())

var layers = []rule{
	{
		from:    []string{"webhooks/sidecar", "webhooks/policy", "webhooks/mutation", "webhooks/authn", "webhooks/authz"},
		imports: []string{"net/http"},
		reason:  "an endpoint is a function from request to response; HTTP is webhooks/review's",
	},
	{
		from:    []string{"webhooks"},
		except:  []string{"webhooks/review", "webhooks/authn/ldapconfig", "webhooks/authn/groupsource", "webhooks/sidecar/merge"},
		imports: []string{"net"},
		reason:  "of all packages here, webhooks/review alone knows the network; ldapconfig and groupsource parse URLs, and merge addresses",
	},
	{
		from:    []string{"webhooks"},
		except:  []string{"webhooks/config", "webhooks/kinds/builtin", "webhooks/kinds/defaults"},
		imports: []string{"os", "syscall", "k8s.io/client-go"},
		reason:  "decisions are pure: files, environment and the API server's objects are given to Compile by cmd",
	},
	{
		from:    []string{"webhooks"},
		imports: []string{"log", "k8s.io/klog", "github.com/go-logr", "sigs.k8s.io/controller-runtime/pkg/log"},
		reason:  "decisions return what happened; cmd logs it",
	},
	{
		from:    []string{"webhooks/config", "webhooks/kinds/builtin", "webhooks/kinds/defaults"},
		imports: []string{"k8s.io/client-go/tools", "k8s.io/client-go/rest", "k8s.io/client-go/informers"},
		reason:  "configuration is read from files; of client-go it knows the scheme of Kubernetes' kinds alone",
	},
	{
		from:    []string{"webhooks"},
		except:  []string{"webhooks/config"},
		imports: []string{"/webhooks/config"},
		reason:  "what decides does not know where its documents are read",
	},
	{
		from:    []string{"cmd/gatehouse/internal"},
		except:  []string{"cmd/gatehouse/internal/app", "cmd/gatehouse/internal/server", "cmd/gatehouse/internal/growth"},
		tests:   true,
		imports: []string{"/cmd/gatehouse/internal/server", "/cmd/gatehouse/internal/cluster/configuration"},
		allowed: []string{"/cmd/gatehouse/internal/server/telemetry", "/cmd/gatehouse/internal/server/certmetrics", "/cmd/gatehouse/internal/server/debug"},
		reason:  "app alone puts the server together",
	},
	{
		from:    []string{"cmd/gatehouse/internal/server/telemetry"},
		tests:   true,
		imports: []string{"/certs", "/cmd/gatehouse/internal/login", "/cmd/gatehouse/internal/server", "/webhooks/config"},
		allowed: []string{"/cmd/gatehouse/internal/server/telemetry"},
		reason:  "telemetry is handed values; it does not know who observes",
	},
	{
		from:   []string{"cmd", "certs", "internal"},
		calls:  []string{"k8s.io/client-go/kubernetes.NewForConfig", "k8s.io/client-go/kubernetes.NewForConfigAndClient"},
		reason: "the clients of all kinds are 8 MB of the binary; take the typed clients that are needed",
	},
	{
		from:   []string{"webhooks"},
		except: []string{"webhooks/config"},
		calls:  []string{"time.Now", "time.Since", "time.Until"},
		reason: "the clock is given: a decision depends on its input alone",
	},
	{
		from:    []string{"webhooks"},
		calls:   []string{"context.WithValue"},
		methods: []string{"Value"},
		reason:  "a context carries the deadline and nothing else; what a decision needs is in its Input",
	},
	{
		from:   []string{"webhooks"},
		except: []string{"webhooks/api", "webhooks/document/diagnostic"},
		names:  []string{"redact"},
		reason: "redaction belongs to recording",
	},
	{
		from:    []string{"webhooks/mutation"},
		tests:   true,
		imports: []string{"/webhooks/policy"},
		allowed: []string{"/webhooks/policy/expression", "/webhooks/policy/validation", "/webhooks/policy/matching"},
		reason:  "policies that change objects know nothing of those that validate them; they share expressions and the checks of documents",
	},
	{
		from:    []string{"webhooks/sidecar", "webhooks/policy", "webhooks/mutation", "webhooks/authn", "webhooks/authz"},
		tests:   true,
		imports: []string{"/webhooks/review"},
		reason:  "an endpoint does not know how it is served, so that anybody's server can mount it",
	},
	{
		from:    []string{"webhooks/review"},
		imports: []string{"/webhooks/sidecar", "/webhooks/policy", "/webhooks/mutation", "/webhooks/authn", "/webhooks/authz"},
		reason:  "the codec carries any function, whatever it decides",
	},
	{
		from:    []string{"webhooks/json", "webhooks/document/diagnostic", "webhooks/api"},
		imports: []string{module},
		reason:  "these are the bottom: everybody may import them",
	},
	{
		from:    []string{"internal"},
		tests:   true,
		imports: []string{"/webhooks", "/certs", "/cmd", "/test"},
		reason:  "helpers below everything know nothing of Gatehouse",
	},
	{
		from:    []string{"internal"},
		except:  []string{"internal/apierr"},
		tests:   true,
		imports: []string{"k8s.io"},
		reason:  "helpers below everything know nothing of Kubernetes",
	},
	{
		from:    []string{"webhooks/cel/value", "webhooks/document/strict", "webhooks/podsecurity", "webhooks/kinds/workload", "webhooks/policy/matching"},
		tests:   true,
		imports: []string{"/webhooks/sidecar", "/webhooks/policy", "/webhooks/mutation", "/webhooks/authn", "/webhooks/review"},
		reason:  "the endpoints are made of these, and they know none of them",
	},
	{
		from:    []string{"webhooks/policy/expression"},
		imports: []string{"/webhooks/api", "/webhooks/document/diagnostic", "/webhooks/document/strict", "/webhooks/podsecurity", "/webhooks/kinds/workload"},
		reason:  "expressions know nothing of policies",
	},
	{
		from:    []string{"webhooks/policy/validation"},
		imports: []string{"/webhooks/policy", "/webhooks/podsecurity", "/webhooks/kinds/builtin", "/webhooks/kinds/workload", "github.com/google/cel-go"},
		allowed: []string{"/webhooks/policy/matching"}, // what rules of two documents can have in common
		reason:  "checking documents knows nothing of evaluating policies",
	},
	{
		from:    []string{"webhooks"},
		tests:   true,
		imports: []string{"/certs", "/cmd"},
		reason:  "what decides does not know how it is run",
	},
	{
		from:    []string{"certs"},
		tests:   true,
		imports: []string{"/webhooks", "/cmd"},
		reason:  "certs does not know what is served",
	},
	{
		from:    []string{""},
		except:  []string{"cmd"},
		tests:   true,
		imports: []string{"/cmd"},
		reason:  "cmd is the program; what others could use lives outside of it",
	},
	{
		from:    []string{"webhooks"},
		except:  []string{"webhooks/policy/differential"}, // which has nothing but tests
		tests:   true,
		imports: []string{"/test"},
		reason:  "the program does not depend on its tests",
	},
	{
		from:    []string{"cmd/gatehouse/internal"},
		except:  []string{"cmd/gatehouse/internal/cli"},
		tests:   true,
		imports: []string{"/cmd/gatehouse/internal/cli"},
		reason:  "what a command and the server share is below both",
	},
	{
		from:    []string{"cmd/gatehouse/internal"},
		except:  []string{"cmd/gatehouse/internal/cli", "cmd/gatehouse/internal/app"},
		imports: []string{"github.com/spf13/cobra", "github.com/spf13/pflag"},
		reason:  "commands have flags; of the others app alone, whose options declare theirs",
	},
	{
		from:    []string{"cmd/gatehouse/internal/cluster", "cmd/gatehouse/internal/history", "cmd/gatehouse/internal/login", "cmd/gatehouse/internal/offline", "cmd/gatehouse/internal/server"},
		tests:   true,
		imports: []string{"/cmd/gatehouse/internal/app"},
		reason:  "app puts the parts of the server together; no part knows it",
	},
	{
		from:    []string{"cmd/gatehouse/internal/offline"},
		imports: []string{"/cmd/gatehouse/internal/cluster/configuration", "/cmd/gatehouse/internal/server", "/cmd/gatehouse/internal/cluster/status", "/cmd/gatehouse/internal/cluster/events"},
		reason:  "what decides without a server does not know one",
	},
	{
		from:    []string{"cmd", "certs"},
		imports: []string{"/test"},
		reason:  "the program does not depend on its tests; these may run a service of test, such as slapd",
	},
}

// endpoints do not know each other. What changes objects shares expressions and the checks of documents with policies.
func endpoints() []rule {
	all := []string{"sidecar", "policy", "authn", "authz", "mutation"}
	list := make([]rule, 0, len(all))
	for i, name := range all {
		others := []string{}
		for k, other := range all {
			// authn writes the scopes that authz reads.
			if k != i && (name != "mutation" || other != "policy") && (name != "authn" || other != "authz") {
				others = append(others, "/webhooks/"+other)
			}
		}
		list = append(list, rule{from: []string{"webhooks/" + name}, tests: true, imports: others, reason: "the endpoints do not know each other"})
	}
	return list
}

// families are the packages of commands. They do not import each other. The tests of the console may: its pages run the other commands.
func families() []rule {
	names := []string{"certs", "console", "install", "login", "offline", "record", "serve", "token"}
	list := make([]rule, 0, len(names))
	for _, name := range names {
		others := make([]string, 0, len(names))
		for _, other := range names {
			if other != name {
				others = append(others, "/cmd/gatehouse/internal/cli/"+other)
			}
		}
		list = append(list, rule{
			from: []string{"cmd/gatehouse/internal/cli/" + name}, tests: name != "console", imports: others,
			reason: "a family of commands does not know the others; what they share is in cli, or below it",
		})
	}
	return list
}

func TestImports(t *testing.T) {
	used := make([]bool, len(rules))
	files := 0
	err := filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file := filepath.ToSlash(strings.TrimPrefix(name, ".."+string(filepath.Separator)))
		if entry.IsDir() {
			return skip(name, entry)
		}
		if path.Ext(file) != ".go" {
			return nil
		}
		files++
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for i := range rules {
			used[i] = used[i] || rules[i].binds(file)
		}
		found, err := check(file, source)
		for _, violation := range found {
			t.Error(violation)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 50 {
		t.Errorf("only %d files were looked at", files)
	}
	for i, bound := range used {
		if !bound {
			t.Errorf("no file is bound by the rule for %q: was a directory renamed?", rules[i].from)
		}
	}
}

// skip leaves out directories that hold no package of this module.
func skip(name string, entry fs.DirEntry) error {
	if name == ".." {
		return nil
	}
	if base := entry.Name(); base == "bin" || base == "testdata" || strings.HasPrefix(base, ".") {
		return fs.SkipDir
	}
	_, err := os.Stat(filepath.Join(name, "go.mod"))
	if err == nil {
		return fs.SkipDir // another module
	}
	return nil
}

// check returns what a file of this module, named by its path from the root, does against the rules.
func check(file string, source []byte) ([]string, error) {
	bound := slices.DeleteFunc(slices.Clone(rules), func(r rule) bool { return !r.binds(file) })
	mode := parser.ImportsOnly
	if slices.ContainsFunc(bound, func(r rule) bool { return len(r.calls)+len(r.methods)+len(r.names) > 0 }) {
		mode = parser.SkipObjectResolution
	}
	positions := token.NewFileSet()
	parsed, err := parser.ParseFile(positions, file, source, mode)
	if err != nil {
		return nil, err
	}
	imports, err := importsOf(parsed)
	if err != nil {
		return nil, err
	}
	var found []string
	report := func(at token.Pos, what string, r rule) {
		found = append(found, fmt.Sprintf("%s: %s: %s", positions.Position(at), what, r.reason))
	}
	for _, r := range bound {
		for _, i := range imports {
			if r.forbidsImport(i.path) {
				report(i.at, fmt.Sprintf("imports %q", i.path), r)
			}
			if i.name == "." && slices.ContainsFunc(r.calls, func(call string) bool { return path.Dir(asPath(call)) == i.path }) {
				report(i.at, fmt.Sprintf("imports %q without its name, which hides calls", i.path), r)
			}
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.Ident:
				if slices.ContainsFunc(r.names, func(part string) bool { return strings.Contains(strings.ToLower(n.Name), part) }) {
					report(n.Pos(), "uses the name "+n.Name, r)
				}
			case *ast.CallExpr:
				if method, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains(r.methods, method.Sel.Name) && isContext(method.X) {
					report(n.Pos(), "calls "+method.Sel.Name, r)
				}
			}
			selector, ok := node.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := selector.X.(*ast.Ident)
			if !ok {
				return true
			}
			for _, i := range imports {
				if call := i.path + "." + selector.Sel.Name; pkg.Name == i.name && slices.Contains(r.calls, call) {
					report(selector.Pos(), "uses "+call, r)
				}
			}
			return true
		})
	}
	return found, nil
}

// isContext reports whether an expression is a context, by its name.
func isContext(of ast.Expr) bool {
	switch e := of.(type) {
	case *ast.Ident:
		return e.Name == "ctx" || e.Name == "context"
	case *ast.SelectorExpr:
		return isContext(e.Sel) || e.Sel.Name == "Context"
	case *ast.CallExpr:
		return isContext(e.Fun)
	default:
		return false
	}
}

type imported struct {
	name, path string
	at         token.Pos
}

func importsOf(file *ast.File) ([]imported, error) {
	list := make([]imported, 0, len(file.Imports))
	for _, spec := range file.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		name := path.Base(target)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		list = append(list, imported{name: name, path: target, at: spec.Pos()})
	}
	return list, nil
}

// asPath makes "time.Now" "time/Now".
func asPath(call string) string { return strings.ReplaceAll(call, ".", "/") }

func (r *rule) binds(file string) bool {
	if strings.HasSuffix(file, "_test.go") && !r.tests {
		return false
	}
	in := func(directory string) bool { return directory == "" || isBelow(file, directory) }
	return slices.ContainsFunc(r.from, in) && !slices.ContainsFunc(r.except, in)
}

func (r *rule) forbidsImport(target string) bool {
	is := func(of string) bool {
		if strings.HasPrefix(of, "/") {
			of = module + of
		}
		return isBelow(target, of)
	}
	return slices.ContainsFunc(r.imports, is) && !slices.ContainsFunc(r.allowed, is)
}

// isBelow reports whether name is the directory, or below it.
func isBelow(name, directory string) bool {
	rest, found := strings.CutPrefix(name, directory)
	return found && (rest == "" || rest[0] == '/')
}

// The rules find what they forbid, and nothing else.
func TestImportRules(t *testing.T) {
	for _, test := range []struct {
		name, file, source string
		// want is a part of what is found, "" for nothing.
		want string
	}{
		{"endpoint and HTTP", "webhooks/policy/x.go", `import "net/http"`, `imports "net/http": an endpoint is a function`},
		{"endpoint and files", "webhooks/sidecar/x.go", `import "os"`, `imports "os": decisions are pure`},
		{"endpoint and a name that begins alike", "webhooks/sidecar/x.go", `import "ossify"`, ""},
		{"clock", "webhooks/authn/x.go", `import "time"; var _ = time.Now`, "uses time.Now: the clock is given"},
		{"clock, renamed", "webhooks/authn/x.go", `import clock "time"; func f() { _ = clock.Since(x) }`, "uses time.Since"},
		{"clock, without its name", "webhooks/authn/x.go", `import . "time"; var _ = Now()`, "which hides calls"},
		{"clock of a test", "webhooks/authn/x_test.go", `import "time"; var _ = time.Now()`, ""},
		{"context with a value", "webhooks/review/x.go", `import "context"; var _ = context.WithValue(a, b, c)`, "uses context.WithValue: a context carries the deadline"},
		{"value of a context", "webhooks/policy/x.go", `var _ = r.Context().Value(key{})`, "calls Value: a context carries"},
		{"redaction", "webhooks/policy/x.go", `type hasRedacted bool`, "uses the name hasRedacted: redaction belongs"},
		{"sidecar and policy", "webhooks/sidecar/x.go", `import "` + module + `/webhooks/policy"`, "do not know each other"},
		{"test and the program's inside", "test/e2e/x_test.go", `import "` + module + `/cmd/gatehouse/internal/server"`, "cmd is the program"},
		{"the program and its tests", "cmd/gatehouse/x.go", `import "` + module + `/test/support/cluster"`, "depend on its tests"},
	} {
		t.Run(test.name, func(t *testing.T) {
			found, err := check(test.file, []byte("package x; "+test.source))
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case test.want == "" && len(found) > 0:
				t.Errorf("found %q, want nothing", found)
			case test.want != "" && (len(found) == 0 || !strings.Contains(strings.Join(found, "\n"), test.want)):
				t.Errorf("found %q, want %q", found, test.want)
			}
		})
	}
}
