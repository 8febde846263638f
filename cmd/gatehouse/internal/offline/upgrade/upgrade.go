// Package upgrade knows what an administrator must do to upgrade Gatehouse.
package upgrade

import (
	_ "embed"
	"fmt"
	"io"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// changelog has the headings of CHANGELOG.md and the steps below them. 'make generate' writes it.
//
//go:embed steps.txt
var changelog string

// Step is something to do before or after an upgrade.
type Step struct {
	// Version is the release with which the step became necessary, "Unreleased" for one that no release has yet.
	Version string `json:"version"`
	// Title is the beginning of Text, up to the first explanation.
	Title string `json:"title"`
	// Text is the whole step, on one line.
	Text string `json:"text"`

	// lines is the step as CHANGELOG.md has it.
	lines []string
}

// Plan is what must be done from one version to this program's.
type Plan struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Steps []Step `json:"steps"`
}

// New returns the steps from a version to this program, whose version is named to. The newest are first.
func New(from, to string) (*Plan, error) { return plan(changelog, from, to) }

var (
	// heading matches "Unreleased", "1.2.3 (2026-11-23)" and "Before 1.2.3", whose steps are for those who had an earlier version than 1.2.3.
	heading = regexp.MustCompile(`^## (?:Before )?(\S+)`)
	title   = regexp.MustCompile(`^\*\*(.+?)\*\*`)
	// described matches what 'git describe' adds to the version before a commit.
	described = regexp.MustCompile(`-[0-9]+-g[0-9a-f]+(-dirty)?$`)
)

func plan(changelog, from, to string) (*Plan, error) {
	before, err := version.ParseSemantic(described.ReplaceAllString(from, ""))
	if err != nil {
		return nil, fmt.Errorf("%q is not a version (hint: write the release that you upgrade from, such as 0.1.0, as gatehouse version prints it; "+
			"0.0.0 is a build of a commit from before 0.1.0)", from)
	}
	p := &Plan{From: from, To: to, Steps: []Step{}}
	newest, current, needed := version.MustParseSemantic("0.0.0"), "", false
	for line := range strings.Lines(changelog) {
		line = strings.TrimSuffix(line, "\n")
		last := len(p.Steps) - 1
		switch found := heading.FindStringSubmatch(line); {
		case found != nil:
			current, needed = found[1], true
			release, err := version.ParseSemantic(current)
			if err != nil {
				continue // Unreleased
			}
			needed = before.LessThan(release)
			if newest.LessThan(release) {
				newest = release
			}
		case line == "" || !needed:
		case strings.HasPrefix(line, "- "):
			p.Steps = append(p.Steps, Step{Version: current, lines: []string{line}})
		case last >= 0:
			p.Steps[last].lines = append(p.Steps[last].lines, line)
		}
	}
	if newest.LessThan(before) {
		return nil, fmt.Errorf("%q is newer than this program, which knows the steps up to %s (hint: use the program of the version that you upgrade to)", from, newest)
	}
	for i := range p.Steps {
		p.Steps[i].describe()
	}
	return p, nil
}

// describe sets Title and Text.
func (s *Step) describe() {
	words := strings.Fields(strings.Join(s.lines, " "))[1:]
	s.Text = strings.Join(words, " ")
	if found := title.FindStringSubmatch(s.Text); found != nil {
		s.Title = found[1]
	}
	s.Text = strings.ReplaceAll(s.Text, "**", "")
}

// Print writes the plan for people. It does not return errors of out.
func (p *Plan) Print(out io.Writer) {
	if len(p.Steps) == 0 {
		_, _ = fmt.Fprintf(out, "From %s to %s there is nothing to do but to apply the new install.\n", p.From, p.To)
		return
	}
	_, _ = fmt.Fprintf(out, "From %s to %s, do this beside applying the new install:\n", p.From, p.To)
	current := ""
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Version != current {
			current = s.Version
			_, _ = fmt.Fprintf(out, "\n%s\n", current)
		}
		for _, line := range s.lines {
			_, _ = fmt.Fprintln(out, strings.ReplaceAll(line, "**", ""))
		}
	}
}
