package monitoring

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// series are the labels of metrics, by name.
type series map[string]map[string]bool

func (s series) add(name string, labels ...string) {
	if s[name] == nil {
		s[name] = map[string]bool{}
	}
	for _, label := range labels {
		s[name][label] = true
	}
}

// others are metrics of what else runs in a cluster, as far as the files may use them, with their labels: of Prometheus itself, of
// kube-state-metrics and of the kubelet's cAdvisor. None is here to ask.
func others() series {
	s := series{}
	s.add("up")
	for _, name := range []string{"kube_deployment_status_replicas_available", "kube_deployment_status_replicas_unavailable"} {
		s.add(name, "namespace", "deployment")
	}
	for _, name := range []string{"container_cpu_cfs_periods_total", "container_cpu_cfs_throttled_periods_total"} {
		s.add(name, "namespace", "pod", "container")
	}
	return s
}

var (
	metricName = regexp.MustCompile(`^gatehouse_[a-z_]*[a-z]$`)
	metricType = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)
	metricLine = regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? [-+0-9.eEINFna]+`)
	metricPair = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)="(?:[^"\\]|\\.)*"`)
)

// exposed are the metrics that a program answers with, in Prometheus' text format.
func exposed(text string) series {
	s := series{}
	for _, m := range metricType.FindAllStringSubmatch(text, -1) {
		if m[2] != "histogram" && m[2] != "summary" {
			s.add(m[1])
		}
	}
	for _, m := range metricLine.FindAllStringSubmatch(text, -1) {
		s.add(m[1])
		for _, pair := range metricPair.FindAllStringSubmatch(m[2], -1) {
			s.add(m[1], pair[1])
		}
	}
	return s
}

// declared are the metrics in the program's source: a vector has no series before something happens.
func declared(t *testing.T) series {
	t.Helper()
	s := series{}
	for _, dir := range []string{"cmd", "certs"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			prefix := ""
			ast.Inspect(file, func(node ast.Node) bool {
				switch n := node.(type) {
				case *ast.BinaryExpr:
					if text := literal(n.X); strings.HasPrefix(text, "gatehouse_") && strings.HasSuffix(text, "_") {
						prefix = text // of what desc is called with below
					}
				case *ast.CallExpr:
					s.declare(prefix, n)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// declare adds the metric that a call makes, if it makes one.
func (s series) declare(prefix string, call *ast.CallExpr) {
	name, labels, histogram := "", []string{}, false
	for i, arg := range call.Args {
		text := literal(arg)
		composite, _ := arg.(*ast.CompositeLit)
		switch {
		case i == 0 && metricName.MatchString(text):
			name = text
		case composite == nil:
		default:
			if array, is := composite.Type.(*ast.ArrayType); is {
				if of, is := array.Elt.(*ast.Ident); is && of.Name == "string" {
					for _, element := range composite.Elts {
						labels = append(labels, literal(element))
					}
				}
			}
			if of, is := composite.Type.(*ast.SelectorExpr); is {
				histogram = of.Sel.Name == "HistogramOpts"
			}
			for _, element := range composite.Elts {
				if pair, is := element.(*ast.KeyValueExpr); is && metricName.MatchString(literal(pair.Value)) {
					name = literal(pair.Value)
				}
			}
		}
	}
	// A method of the telemetry's factory has name, help, and then, behind the buckets of a histogram, the labels.
	if called, is := call.Fun.(*ast.SelectorExpr); is && name != "" && slices.Contains([]string{"counters", "gauges", "histograms"}, called.Sel.Name) {
		histogram = called.Sel.Name == "histograms"
		for _, arg := range call.Args[2:] {
			if label := literal(arg); label != "" {
				labels = append(labels, label)
			}
		}
	}
	if called, is := call.Fun.(*ast.Ident); is && called.Name == "desc" && prefix != "" {
		name, labels = prefix+literal(call.Args[0]), []string{"directory"}
		for _, arg := range call.Args[2:] {
			labels = append(labels, literal(arg))
		}
	}
	switch {
	case name == "":
	case histogram:
		s.add(name+"_bucket", append(labels, "le")...)
		s.add(name+"_sum", labels...)
		s.add(name+"_count", labels...)
	default:
		s.add(name, labels...)
	}
}

// literal is the text of a string literal, empty for all else.
func literal(expr ast.Expr) string {
	basic, is := expr.(*ast.BasicLit)
	if !is || basic.Kind != token.STRING {
		return ""
	}
	text, err := strconv.Unquote(basic.Value)
	if err != nil {
		return ""
	}
	return text
}

// base is the name by which a metric is documented.
func base(name string) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}

func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
