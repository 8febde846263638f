package offline

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/build"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report/junit"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report/sarif"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

func (f *checkFlags) write(s cli.Streams, report *checkReport) error {
	out := bufio.NewWriter(s.Out)
	var err error
	switch f.output {
	case "json":
		err = report.json(out)
	case "sarif":
		err = report.sarif().Write(out)
	case "junit":
		err = junit.Write(out, report.junit())
	default:
		t := checkTable{out: out, colour: cli.IsTerminal(s.Out), quiet: f.quiet}
		t.print(report)
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
		all = append(all, remark{string(v.Effect), violationLine(&v.Violation)})
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
	out           io.Writer
	colour, quiet bool
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
	row := func(colour string, verdict, object, in, where string) {
		verdict = fmt.Sprintf("%-*s", width, verdict)
		if t.colour && colour != "" {
			verdict = colour + verdict + paintEnd
		}
		line := fmt.Sprintf("%s  %-*s  %-*s  %s", verdict, title, object, namespace, in, where)
		_, _ = io.WriteString(t.out, strings.TrimRight(line, " ")+"\n")
	}
	if len(shown) > 0 {
		row("", "VERDICT", "OBJECT", "NAMESPACE", "FILE")
	}
	for _, c := range shown {
		row(checkColour(c.Verdict), c.Verdict.text(), c.title, cli.OneLine(c.Namespace), fmt.Sprintf("%s, line %d", c.source, c.Line))
		for _, remark := range c.remarks() {
			_, _ = fmt.Fprintf(t.out, "  %s: %s\n", remark.label, remark.text)
		}
	}
	if !t.quiet {
		_, _ = fmt.Fprintln(t.out, r.summary())
	}
}

func checkColour(v checkVerdict) string {
	const yellow = "\x1b[33m"
	switch v {
	case checkAdmitted:
		return paintGreen
	case checkWarned:
		return yellow
	case checkRefused, checkUnknown:
		return paintRed
	default:
		return ""
	}
}

// junit returns the report with a suite for each file and a case for each object.
func (r *checkReport) junit() []junit.Suite {
	var suites []junit.Suite
	for _, c := range r.objects {
		if len(suites) == 0 || suites[len(suites)-1].Name != c.File {
			suites = append(suites, junit.Suite{Name: c.File, File: c.File})
		}
		one := junit.Case{Name: c.name(), Class: c.File}
		var text strings.Builder
		_, _ = fmt.Fprintf(&text, "%s, line %d\n", c.source, c.Line) // to memory, here and below
		for _, remark := range c.remarks() {
			_, _ = fmt.Fprintf(&text, "%s: %s\n", remark.label, remark.text)
		}
		denied := 0
		for i := range c.Violations {
			if c.Violations[i].Effect == effectDenied {
				denied++
			}
		}
		switch c.Verdict {
		case checkRefused:
			one.Failure, one.Text = "refused: "+diagnostic.Count(denied, "violation"), text.String()
		case checkUnknown:
			one.Error, one.Text = "cannot decide: "+cli.OneLine(c.Error), text.String()
		case checkAdmitted, checkWarned:
			if len(c.remarks()) > 0 {
				one.Output = text.String()
			}
		}
		suite := &suites[len(suites)-1]
		suite.Cases = append(suite.Cases, one)
	}
	return suites
}

// name returns the object with its namespace, if it is in one.
func (c *checked) name() string {
	if c.Namespace == "" {
		return c.title
	}
	return c.title + " in namespace " + cli.OneLine(c.Namespace)
}

// sarif returns the report with a result for each remark.
func (r *checkReport) sarif() *sarif.Log {
	log := &sarif.Log{Tool: "gatehouse", Version: build.Version(), URI: "https://github.com/gatehouse-dev/gatehouse"}
	for _, c := range r.objects {
		same := make(map[string]int) // violations of the rule so far
		add := func(result sarif.Result, key ...string) {
			result.File, result.Object = c.File, c.name()
			key = append([]string{c.File, c.Kind, c.Namespace, c.Name, result.Rule}, key...)
			joined := strings.Join(key, "\x00")
			same[joined]++
			sum := sha256.Sum256([]byte(joined + "\x00" + strconv.Itoa(same[joined])))
			result.Fingerprint = hex.EncodeToString(sum[:16])
			log.Results = append(log.Results, result)
		}
		if c.Error != "" {
			message := c.name() + ": cannot decide: " + c.Error
			log.Notifications = append(log.Notifications, sarif.Notification{Message: message, File: c.File, Line: c.Line})
			add(sarif.Result{Rule: string(checkUnknown), Description: "Something about the object could not be decided.", Level: sarif.Error, Message: message, Line: c.Line})
		}
		for i := range c.Violations {
			v := &c.Violations[i]
			add(v.result(c), v.Binding, v.Param, v.Template)
		}
		for _, warning := range c.Warnings {
			add(sarif.Result{Rule: "warning", Description: "A warning for the author of the object.", Level: sarif.Warning, Message: c.name() + ": " + warning, Line: c.Line})
		}
		if c.Note != "" {
			add(sarif.Result{Rule: "assumption", Description: "Something was assumed that may be wrong.", Level: sarif.Note, Message: c.name() + ": " + c.Note, Line: c.Line})
		}
	}
	return log
}

// result returns the violation as a result without its object.
func (v *checkedViolation) result(c *checked) sarif.Result {
	rule := strings.Join(slices.DeleteFunc([]string{v.Kind, v.Policy, v.Rule}, func(part string) bool { return part == "" }), "/")
	r := sarif.Result{
		Rule: rule, Description: "Rule " + rule + " is violated.", Level: sarif.Note,
		Message: c.name() + ": " + v.Message, Line: v.Line,
	}
	if v.Template != "" {
		r.Message = c.name() + ", " + v.Template + ": " + v.Message
	}
	switch v.Effect {
	case effectDenied:
		r.Level = sarif.Error
	case effectWarned:
		r.Level = sarif.Warning
	case effectExcepted:
		r.Suppressed = "PolicyException " + v.Exception
	case effectExisting:
		r.Suppressed = "the object violated the rule before the update, which does not make it worse"
	case effectAudited:
	}
	return r
}
