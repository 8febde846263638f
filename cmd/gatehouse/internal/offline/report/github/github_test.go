package github_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/report/github"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		result report.Result
		want   string
	}{
		"a place": {
			report.Result{Rule: "type", Level: report.Error, Message: "no", File: "a/b.yaml", Line: 3, Column: 7},
			"::error file=a/b.yaml,line=3,col=7,title=type::no\n",
		},
		"a line": {report.Result{Rule: "type", Level: report.Warning, Message: "no", File: "b.yaml", Line: 3}, "::warning file=b.yaml,line=3,title=type::no\n"},
		"a file": {report.Result{Rule: "type", Level: report.Note, Message: "no", File: "b.yaml", Column: 3}, "::notice file=b.yaml,line=1,title=type::no\n"},
		"a template": {
			report.Result{Rule: "type", Level: report.Error, Message: "no", File: "t.yaml", Line: 3, Column: 7, Rendered: true},
			"::error file=t.yaml,line=1,title=type::no (line 3 of what t.yaml renders to)\n",
		},
		"suppressed": {report.Result{Rule: "type", Level: report.Error, Message: "no", Suppressed: "because"}, ""},
		"another command in a message": {
			report.Result{Rule: "a:b,c", Level: report.Error, Message: "100%\r\n::set-output name=a::b", File: "a,b:c%.yaml", Line: 1},
			"::error file=a%2Cb%3Ac%25.yaml,line=1,title=a%3Ab%2Cc::100%25%0A::set-output name=a::b\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			if err := github.Write(&out, []report.Result{tc.result}, "1 object"); err != nil || out.String() != tc.want+"::notice title=gatehouse::1 object\n" {
				t.Errorf("got %q, %v, want %q", out.String(), err, tc.want)
			}
		})
	}
}

// FuzzWrite checks that nothing in a result starts a command of its own.
func FuzzWrite(f *testing.F) {
	f.Add("rule", "file.yaml", "message\n::error::x")
	f.Fuzz(func(t *testing.T, rule, file, text string) {
		var out strings.Builder
		if err := github.Write(&out, []report.Result{{Rule: rule, File: file, Message: text, Level: report.Error}}, text); err != nil {
			t.Fatal(err)
		}
		line, totals, _ := strings.Cut(strings.TrimSuffix(out.String(), "\n"), "\n")
		if strings.ContainsAny(line+totals, "\r\n") || !strings.HasPrefix(line, "::error ") || !strings.HasPrefix(totals, "::notice title=gatehouse::") {
			t.Errorf("got %q", out.String())
		}
	})
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestErrorsOfTheWriterAreReturned(t *testing.T) {
	t.Parallel()
	if err := github.Write(failing{}, []report.Result{{}}, ""); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v", err)
	}
}
