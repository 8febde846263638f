package reference

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

// Metric is a metric in the program's source.
type Metric struct {
	Name, Help, Type string
	Labels           []string
}

var metricName = regexp.MustCompile(`^gatehouse_[a-z0-9_]+[a-z0-9]$`)

// Metrics are the metrics that the source in these directories declares, in the order of their names.
func Metrics(dirs ...string) ([]Metric, error) {
	_, files, err := goFiles(dirs...)
	if err != nil {
		return nil, err
	}
	var all []Metric
	for _, file := range files {
		prefix := ""
		ast.Inspect(file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.BinaryExpr:
				if text := literal(n.X); strings.HasPrefix(text, "gatehouse_") && strings.HasSuffix(text, "_") {
					prefix = text // of what desc is called with below
				}
			case *ast.CallExpr:
				if m, is := metric(prefix, n); is {
					all = append(all, m)
				}
			}
			return true
		})
	}
	slices.SortFunc(all, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return slices.CompactFunc(all, func(a, b Metric) bool { return a.Name == b.Name }), nil
}

// metric is the metric that a call makes, if it makes one.
func metric(prefix string, call *ast.CallExpr) (m Metric, is bool) {
	called := typeName(call.Fun)
	called = called[strings.LastIndex(called, ".")+1:]
	var texts []string
	for _, arg := range call.Args {
		composite, isComposite := arg.(*ast.CompositeLit)
		if !isComposite {
			texts = append(texts, literal(arg))
			continue
		}
		if array, isArray := composite.Type.(*ast.ArrayType); isArray && typeName(array.Elt) == "string" {
			for _, element := range composite.Elts {
				m.Labels = append(m.Labels, literal(element))
			}
		}
		for _, element := range composite.Elts {
			pair, isPair := element.(*ast.KeyValueExpr)
			if !isPair {
				continue
			}
			switch typeName(pair.Key) {
			case "Name":
				m.Name = literal(pair.Value)
			case "Help":
				m.Help = literal(pair.Value)
			}
		}
		if options := typeName(composite.Type); strings.HasSuffix(options, "Opts") {
			m.Type = strings.ToLower(strings.TrimSuffix(options[strings.LastIndex(options, ".")+1:], "Opts"))
		}
	}
	if len(texts) > 1 && m.Name == "" {
		m.Name, m.Help = texts[0], texts[1]
		// A method of the telemetry's factory has name, help, and then the labels. Those of a desc are in a list, too.
		if called == "desc" && prefix != "" {
			m.Name = prefix + m.Name
			m.Labels = append([]string{"directory"}, m.Labels...)
		}
		for _, label := range texts[2:] {
			if label != "" {
				m.Labels = append(m.Labels, label)
			}
		}
		for _, of := range []string{"counter", "gauge", "histogram"} {
			if strings.HasPrefix(strings.ToLower(called), of) {
				m.Type = of
			}
		}
	}
	return m, metricName.MatchString(m.Name) && strings.HasSuffix(m.Help, ".") // and no use of a metric
}

// AddMetrics adds the page of the metrics.
func (p Pages) AddMetrics(dirs ...string) error {
	all, err := Metrics(dirs...)
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("# Metrics\n\n`/metrics` of `--ops-listen` has these, and those of Go and of the process. Requests cannot add time series: labels have\nnames from the configuration, or values of a fixed list.\n\n")
	for _, m := range all {
		fmt.Fprintf(&b, "- **`%s`**", m.Name)
		var about []string
		if m.Type != "" {
			about = append(about, m.Type)
		}
		if len(m.Labels) > 0 {
			about = append(about, "by `"+strings.Join(m.Labels, "`, `")+"`")
		}
		if len(about) > 0 {
			fmt.Fprintf(&b, " (%s)", strings.Join(about, " "))
		}
		fmt.Fprintf(&b, ": %s\n", escape(m.Help))
	}
	p.add("metrics.md", b.String())
	return nil
}

// AddLogMessages adds the page of what the server logs, from calls of its logger. A comment above a call that begins with "Logged"
// says when.
func (p Pages) AddLogMessages(dirs ...string) error {
	set, files, err := goFiles(dirs...)
	if err != nil {
		return err
	}
	type line struct{ level, message, keys, meaning string }
	var all []line
	for _, file := range files {
		comments := map[int]*ast.CommentGroup{}
		for _, group := range file.Comments {
			comments[set.Position(group.End()).Line] = group
		}
		ast.Inspect(file, func(node ast.Node) bool {
			call, is := node.(*ast.CallExpr)
			if !is || len(call.Args) == 0 {
				return true
			}
			method, is := call.Fun.(*ast.SelectorExpr)
			if !is || !slices.Contains([]string{"Info", "Warn", "Error", "Debug"}, method.Sel.Name) || literal(call.Args[0]) == "" || typeName(method.X) == "http" {
				return true
			}
			l := line{level: strings.ToLower(method.Sel.Name), message: literal(call.Args[0])}
			var keys []string
			for i := 1; i < len(call.Args); i += 2 {
				if key := literal(call.Args[i]); key != "" {
					keys = append(keys, key)
				}
			}
			l.keys = strings.Join(keys, "`, `")
			if group := comments[set.Position(call.Pos()).Line-1]; group != nil && strings.HasPrefix(group.Text(), "Logged ") {
				l.meaning = prose(group)
			}
			all = append(all, l)
			return true
		})
	}
	slices.SortFunc(all, func(a, b line) int {
		return strings.Compare(a.message+" "+a.level+a.keys, b.message+" "+b.level+b.keys)
	})
	var b strings.Builder
	b.WriteString("# Log messages\n\nThe server logs JSON lines (`--log-format`) with `time`, `level`, `msg` and the keys below. A `hint` says what to do.\n\n")
	for i, l := range all {
		if i > 0 && all[i-1].message == l.message && all[i-1].level == l.level && all[i-1].keys == l.keys {
			continue
		}
		fmt.Fprintf(&b, "- **%s** (%s)", escape(l.message), l.level)
		if l.keys != "" {
			fmt.Fprintf(&b, ": `%s`", l.keys)
		}
		if l.meaning != "" {
			fmt.Fprintf(&b, ". %s", indent(l.meaning, "  "))
		}
		b.WriteByte('\n')
	}
	p.add("log-messages.md", b.String())
	return nil
}
