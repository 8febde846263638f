package bound

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// compileAll adds the expressions to a budget and parses them.
func compileAll(t *testing.T, texts []string) error {
	t.Helper()
	env, bounds := sharedBounds()
	budget := new(Budget)
	for _, text := range texts {
		if err := budget.Add(text); err != nil {
			return err
		}
	}
	for _, text := range texts {
		if _, issues, err := bounds.ParseWithin(budget, env, text, nil); err != nil {
			return err
		} else if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
	}
	return nil
}

// TestBudget has documents of expressions each of which is small enough.
func TestBudget(t *testing.T) {
	t.Parallel()
	repeat := func(n int, text string) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = text
		}
		return all
	}
	for _, tc := range []struct {
		name  string
		texts []string
		want  string
	}{
		{"as many as allowed", repeat(documentExpressions, "object.a == 1"), ""},
		{"too many", repeat(documentExpressions+1, "1"), "there are more than 500"},
		{"too many bytes", repeat(5, "'"+strings.Repeat("a", 15<<10)+"'"), "more than 32768 bytes"},
		{"too many parts", repeat(450, "optional.of(1)"+strings.Repeat(".optMap(x, x)", 2)+".hasValue()"), "they have more than 10000 parts"},
		{"types that are too large", repeat(300, strings.Repeat("[", 20)+strings.Repeat("]", 20)+" == []"), "add up to more than 100000"},
		{"patterns that are too large", repeat(30, "'a'.matches('^(ab){500}')"), "have more than 20000 parts"},
		{"one expression", []string{"'" + strings.Repeat("a", maxText) + "'"}, "it can have at most 16384 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := compileAll(t, tc.texts)
			if tc.want == "" && err == nil {
				return
			}
			if err == nil || tc.want == "" || !strings.HasSuffix(err.Error(), tc.want) && !strings.Contains(err.Error(), tc.want) || !errors.Is(err, ErrDocument) && !errors.Is(err, ErrTooLarge) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// TestPatternBudget has patterns of parameters.
func TestPatternBudget(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, pattern string
		times         int
		want          error
	}{
		{"ordinary", "[a-z]([-a-z0-9]{0,61}[a-z0-9])?", 100, nil},
		{"one that is too large", "(abcdefgh){900}", 1, ErrTooLarge},
		{"too large together", "(ab){500}", 30, ErrDocument},
		{"too many", "a", documentExpressions + 1, ErrDocument},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			budget := new(Budget)
			var err error
			for range tc.times {
				if err = budget.AddPattern(tc.pattern); err != nil {
					break
				}
			}
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// TestStop ends with the budget's Stop before each expression and pattern.
func TestStop(t *testing.T) {
	t.Parallel()
	env, bounds := sharedBounds()
	late, calls := errors.New("late"), 0
	budget := &Budget{Stop: func() error {
		if calls++; calls > 2 {
			return late
		}
		return nil
	}}
	for i, want := range []error{nil, nil, late, late} {
		var err error
		if i%2 == 0 {
			_, _, err = bounds.ParseWithin(budget, env, "true", nil)
		} else {
			err = budget.AddPattern("a")
		}
		if !errors.Is(err, want) {
			t.Errorf("%d: got %v, want %v", i, err, want)
		}
	}
}

// TestDocumentMargin holds that the bounds of a document are far from everything that
// this repository has in one file of its manifests and documents.
func TestDocumentMargin(t *testing.T) {
	t.Parallel()
	env, bounds := sharedBounds()
	files := map[string]*Budget{}
	for place, text := range written() {
		file, _, _ := strings.Cut(place, " ")
		if extension := filepath.Ext(file); extension != ".yaml" && extension != ".md" {
			continue
		}
		parsed, issues := env.Parse(text)
		if issues.Err() != nil {
			continue // an example of what is wrong
		}
		if files[file] == nil {
			files[file] = new(Budget)
		}
		b, r := files[file], estimate{Bounds: bounds}
		r.visit(parsed.NativeRep().Expr())
		b.texts, b.bytes, b.parts, b.work, b.patterns = b.texts+1, b.bytes+len(text), b.parts+r.parts, b.work+r.total(), b.patterns+r.patterns
	}
	var most Budget
	for file, b := range files {
		// Lists of names, such as the annotations that controllers of Ingresses read, are many bytes and little work.
		if margin*b.texts > documentExpressions || (margin-1)*b.bytes > documentBytes || margin*b.parts > documentParts || margin*b.work > documentWork || margin*b.patterns > documentPatterns {
			t.Errorf("%s: %d expressions of %d bytes, %d parts, %d of work and %d of patterns", file, b.texts, b.bytes, b.parts, b.work, b.patterns)
		}
		most.texts, most.bytes, most.parts = max(most.texts, b.texts), max(most.bytes, b.bytes), max(most.parts, b.parts)
		most.work, most.patterns = max(most.work, b.work), max(most.patterns, b.patterns)
	}
	t.Logf("of %d files the most are %s", len(files), fmt.Sprintf("%+v", most))
	if len(files) < 30 {
		t.Errorf("only %d files have expressions", len(files))
	}
}
