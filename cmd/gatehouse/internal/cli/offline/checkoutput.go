package offline

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli/decision"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report/github"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report/sarif"
	"github.com/gatehouse-dev/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
)

func (f *checkFlags) write(s cli.Streams, r *checkReport) error {
	out := bufio.NewWriter(s.Out)
	var err error
	switch f.output {
	case "json":
		err = r.json(out)
	case "sarif":
		err = writeSARIF(out, r.results(), !slices.ContainsFunc(r.objects, func(c *checked) bool { return c.Error != "" }))
	case "github":
		err = github.Write(out, r.results(), strings.Join(append(r.rules(), r.summary()), "\n"))
	default:
		t := checkTable{out: out, quiet: f.quiet, hints: map[string]bool{}}
		t.print(r)
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

func (r *checkReport) json(out io.Writer) error {
	for _, c := range r.objects {
		if err := cli.WriteJSONLine(out, c); err != nil {
			return err
		}
	}
	return nil
}

// summary returns how many objects there are of each verdict.
func (r *checkReport) summary() string {
	var parts []string
	for _, v := range checkVerdicts() {
		if n := r.counts[v]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, v.text()))
		}
	}
	return diagnostic.Count(len(r.objects), "object") + ": " + strings.Join(parts, ", ")
}

// rules returns a table of what was found by rule, the most frequent first.
func (r *checkReport) rules() []string {
	const most = 30
	type key struct{ effect, rule string }
	objects := map[key]int{}
	for _, c := range r.objects {
		found := map[key]bool{}
		if c.Error != "" {
			cause, _ := cutHint(cli.OneLine(c.Error))
			found[key{checkUnknown.text(), cause}] = true
		}
		for i := range c.Violations {
			found[key{string(c.Violations[i].Effect), cli.OneLine(c.Violations[i].ruleName())}] = true
		}
		for k := range found {
			objects[k]++
		}
	}
	if len(objects) == 0 {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(objects), func(a, b key) int {
		return cmp.Or(cmp.Compare(objects[b], objects[a]), cmp.Compare(a.effect, b.effect), cmp.Compare(a.rule, b.rule))
	})
	lines := []string{fmt.Sprintf("%-13s  %-7s  %s", "EFFECT", "OBJECTS", "RULE")}
	for _, k := range keys[:min(len(keys), most)] {
		lines = append(lines, fmt.Sprintf("%-13s  %-7d  %s", k.effect, objects[k], k.rule))
	}
	if len(keys) > most {
		lines = append(lines, fmt.Sprintf("… and %d more", len(keys)-most))
	}
	return lines
}

// cutHint returns a text without the hint at its end, and the hint.
func cutHint(text string) (before, hint string) {
	if at := strings.LastIndex(text, " (hint: "); at >= 0 && strings.HasSuffix(text, ")") {
		return text[:at], text[at:]
	}
	return text, ""
}

// remark is something that there is to say about an object.
type remark struct {
	label, text string
}

// remarks are everything that there is to say about the object but its verdict.
func (c *checked) remarks() []remark {
	var all []remark
	if c.Error != "" {
		all = append(all, remark{checkUnknown.text(), cli.OneLine(c.Error)})
	}
	for i := range c.Violations {
		v := &c.Violations[i]
		all = append(all, remark{string(v.Effect), decision.ViolationLine(&v.Violation)})
	}
	for _, warning := range c.Warnings {
		all = append(all, remark{"warning", cli.OneLine(warning)})
	}
	if c.Note != "" {
		all = append(all, remark{"note", cli.OneLine(c.Note)})
	}
	return all
}

// checkTable writes for people. Flush of out has the error.
type checkTable struct {
	out   io.Writer
	quiet bool
	// hints are those that were shown: each is shown once for its cause.
	hints map[string]bool
}

// manyObjects is from how many objects on the table ends with another one by rule, because nobody counts them.
const manyObjects = 20

// text returns a remark with a hint that was not shown yet.
func (t *checkTable) text(r remark) string {
	before, hint := cutHint(r.text)
	cause := r.text
	if strings.Contains(hint, labelsHint) { // it is the same for all namespaces
		cause = hint
	}
	if hint == "" || !t.hints[cause] {
		t.hints[cause] = true
		return r.text
	}
	return before
}

func (t *checkTable) print(r *checkReport) {
	width, title, namespace := len("VERDICT"), len("OBJECT"), len("NAMESPACE")
	var shown []*checked
	for _, c := range r.objects {
		if t.quiet && c.Verdict == checkAdmitted && len(c.remarks()) == 0 {
			continue
		}
		shown = append(shown, c)
		width, namespace = max(width, len(c.Verdict)), max(namespace, utf8.RuneCountInString(c.Namespace))
		title = max(title, utf8.RuneCountInString(c.title))
	}
	row := func(verdict, object, in, where string) {
		line := fmt.Sprintf("%-*s  %-*s  %-*s  %s", width, verdict, title, object, namespace, in, where)
		_, _ = io.WriteString(t.out, strings.TrimRight(line, " ")+"\n")
	}
	if len(shown) > 0 {
		row("VERDICT", "OBJECT", "NAMESPACE", "FILE")
	}
	for _, c := range shown {
		row(c.Verdict.text(), c.title, cli.OneLine(c.Namespace), cli.OneLine(c.where()))
		for _, remark := range c.remarks() {
			_, _ = fmt.Fprintf(t.out, "  %s: %s\n", remark.label, t.text(remark))
		}
	}
	if lines := r.rules(); len(r.objects) >= manyObjects && len(lines) > 0 {
		_, _ = fmt.Fprintln(t.out, "\n"+strings.Join(lines, "\n"))
	}
	_, _ = fmt.Fprintln(t.out, r.summary())
}

// where returns the place of the object.
func (c *checked) where() string {
	if c.Rendered {
		return fmt.Sprintf("%s, line %d of what it renders to", cli.OneLine(c.source), c.Line)
	}
	return fmt.Sprintf("%s, line %d", c.source, c.Line)
}

// name returns the object with its namespace, if it is in one.
func (c *checked) name() string {
	if c.Namespace == "" {
		return c.title
	}
	return c.title + " in namespace " + cli.OneLine(c.Namespace)
}

// results returns a result for each remark.
func (r *checkReport) results() (found []report.Result) {
	for _, c := range r.objects {
		add := func(result report.Result) {
			result.File, result.Object, result.Rendered = c.File, c.name(), c.Rendered
			if c.noLines {
				result.Line, result.Column = 0, 0
			}
			found = append(found, result)
		}
		remark := func(rule, description string, level report.Level, message string) {
			add(report.Result{Rule: rule, Description: description, Level: level, Message: c.name() + ": " + message, Line: c.Line})
		}
		if c.Error != "" {
			remark(string(checkUnknown), "Something about the object could not be decided.", report.Error, "cannot decide: "+c.Error)
		}
		for i := range c.Violations {
			add(c.Violations[i].result(c))
		}
		for _, warning := range c.Warnings {
			remark("warning", "A warning for the author of the object.", report.Warning, warning)
		}
		if c.Note != "" {
			remark("assumption", "Something was assumed that may be wrong.", report.Note, c.Note)
		}
	}
	return found
}

// writeSARIF writes results. Decided reports whether everything could be decided.
func writeSARIF(out io.Writer, results []report.Result, decided bool) error {
	log := sarif.Log{Tool: "gatehouse", Version: build.Version(), URI: build.ProjectURL, Results: results, Successful: decided}
	return log.Write(out)
}

// ruleName returns what is violated: the kind, policy and rule.
func (v *checkedViolation) ruleName() string {
	return strings.Join(slices.DeleteFunc([]string{v.Kind, v.Policy, v.Rule}, func(part string) bool { return part == "" }), "/")
}

// result returns the violation as a result without its object.
func (v *checkedViolation) result(c *checked) report.Result {
	rule := v.ruleName()
	r := report.Result{
		Rule: rule, Description: "Rule " + rule + " is violated.", Level: report.Note,
		Message: c.name() + ": " + v.Message, Line: v.Line, Column: v.Column,
	}
	if v.Template != "" {
		r.Message = c.name() + ", " + v.Template + ": " + v.Message
	}
	switch v.Effect {
	case effectDenied:
		r.Level = report.Error
	case effectWarned:
		r.Level = report.Warning
	case effectExcepted:
		r.Suppressed = "PolicyException " + v.Exception
	case effectBaselined:
		r.Suppressed = "PolicyBaseline " + v.Baseline
	case effectExisting:
		r.Suppressed = "the object violated the rule before the update, which does not make it worse"
	case effectAudited:
	}
	return r
}
