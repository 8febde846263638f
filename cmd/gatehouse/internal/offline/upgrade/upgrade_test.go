package upgrade

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const history = `## Unreleased

- **Ask first**: it is
  new.

## 0.2.0 (2027-01-02)

## 0.1.1 (2026-12-24)

- **Run it twice**, or **thrice**.
- **Look**: there.

## 0.1.0 (2026-11-23)

## Before 0.1.0

- **Apply all again.**
`

// The steps are those of all versions after the one that is upgraded from.
func TestPlan(t *testing.T) {
	t.Parallel()
	const unreleased, patch, first = "Unreleased: Ask first", "0.1.1: Run it twice; 0.1.1: Look", "0.1.0: Apply all again."
	for _, test := range []struct{ from, want string }{
		{"0.0.0", unreleased + "; " + patch + "; " + first},
		{"v0.0.0-20261123160744-c1c41a5e9bad", unreleased + "; " + patch + "; " + first},
		{"v0.1.0-rc.1", unreleased + "; " + patch + "; " + first},
		{"0.1.0", unreleased + "; " + patch},
		{"v0.1.0-12-gc1c41a5-dirty", unreleased + "; " + patch},
		{"0.1.1", unreleased},
		{"0.1.7", unreleased},
		{"v0.2.0", unreleased},
	} {
		p, err := plan(history, test.from, "v0.2.0")
		if err != nil {
			t.Errorf("%s: %v", test.from, err)
			continue
		}
		var got []string
		for _, s := range p.Steps {
			got = append(got, s.Version+": "+s.Title)
		}
		if got := strings.Join(got, "; "); got != test.want {
			t.Errorf("%s: got  %s\nwant %s", test.from, got, test.want)
		}
	}
	p, err := plan(history, "0.1.0", "v0.2.0")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.Steps[0].Text, "Ask first: it is new."; got != want {
		t.Errorf("the text is %q, want %q", got, want)
	}
	var out strings.Builder
	p.Print(&out)
	const want = `From 0.1.0 to v0.2.0, do this beside applying the new install:

Unreleased
- Ask first: it is
  new.

0.1.1
- Run it twice, or thrice.
- Look: there.
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestNothingToDo(t *testing.T) {
	t.Parallel()
	p, err := plan("## Unreleased\n\n## 0.1.0 (2026-11-23)\n", "0.1.0", "v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	p.Print(&out)
	if got, want := out.String(), "From 0.1.0 to v0.1.0 there is nothing to do but to apply the new install.\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWrongVersion(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"":        "is not a version (hint: write the release",
		"c1c41a5": "is not a version (hint: write the release",
		"0.1":     "is not a version (hint: write the release",
		"0.3.0":   "is newer than this program, which knows the steps up to 0.2.0 (hint: ",
	} {
		if _, err := plan(history, from, "v0.2.0"); err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("%q ", from)+want) {
			t.Errorf("%q: %v", from, err)
		}
	}
}

// The program has the steps of CHANGELOG.md, all of them and word for word.
func TestStepsOfChangelog(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "..", "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	steps := false
	for line := range strings.Lines(string(content)) {
		if strings.HasPrefix(line, "## ") {
			want.WriteString(line)
		}
		if strings.HasPrefix(line, "##") {
			steps = line == "### Act on these when you update\n"
		} else if steps {
			want.WriteString(line)
		}
	}
	if changelog != want.String() {
		t.Errorf("steps.txt is not what CHANGELOG.md says (hint: run make generate): got\n%s\nwant\n%s", changelog, &want)
	}
	if !strings.Contains(changelog, "\n- **") {
		t.Error("there are no steps at all")
	}
}
