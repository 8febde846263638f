package docs

import (
	"regexp"
	"strings"
	"testing"
)

var (
	// step begins a step of a task: an item of a list, or a heading with a number.
	step = regexp.MustCompile(`^(## )?\d+\. `)
	// relative begins a sentence whose actor is a relative clause. A question may begin so.
	relative = regexp.MustCompile(`(?:^|[.!?] )((?:Who|Whoever|What|Whatever) [^.!?]*[.!])`)
	heading  = regexp.MustCompile(`^#+ `)
)

// TestTasks has every task in one form: what the reader needs, numbered steps with commands, and no picture of how things work.
func TestTasks(t *testing.T) {
	t.Parallel()
	all := pages(t, "tasks")
	if len(all) == 0 {
		t.Fatal("there are no tasks")
	}
	for _, p := range all {
		steps := 0
		for _, line := range p.prose() {
			if step.MatchString(line) {
				steps++
			}
		}
		commands := 0
		for _, b := range p.blocks {
			switch b.language {
			case "sh":
				commands++
			case "mermaid":
				t.Errorf("%s: a picture belongs to a page in docs/concepts", p.place(b.first))
			case "":
				t.Errorf("%s: the block has no language", p.place(b.first))
			}
		}
		if p.section("## What you need") == "" || steps == 0 || commands == 0 {
			t.Errorf("%s has %d steps and %d blocks of commands, and needs some of both, and the heading 'What you need'", p.path, steps, commands)
		}
	}
}

// TestConcepts has every concept in one form: prose with one picture. Numbered items may explain its arrows.
func TestConcepts(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t, "concepts") {
		pictures := 0
		for _, b := range p.blocks {
			if b.language == "mermaid" {
				pictures++
			}
		}
		if pictures != 1 {
			t.Errorf("%s has %d pictures in Mermaid, want 1", p.path, pictures)
		}
		if p.section("## What you need") != "" {
			t.Errorf("%s is a task: it belongs into docs/tasks", p.path)
		}
	}
}

// TestProse holds every page that people write to what people can read: short cells, and sentences that name their actor.
func TestProse(t *testing.T) {
	t.Parallel()
	const most = 25 // words of a cell
	for _, folder := range []string{"tasks", "concepts", "."} {
		for _, p := range pages(t, folder) {
			paragraph, begin := "", 0
			for i, line := range append(p.prose(), "") {
				line = strings.TrimSpace(line)
				switch {
				case strings.HasPrefix(line, "|"):
					for cell := range strings.SplitSeq(strings.Trim(line, "| "), " | ") {
						if words := len(strings.Fields(cell)); words > most {
							t.Errorf("%s: a cell has %d words, at most %d can be read: write prose", p.place(i), words, most)
						}
					}
				case line == "", heading.MatchString(line):
					for _, m := range relative.FindAllStringSubmatch(paragraph, -1) {
						t.Errorf("%s: name the actor: %q", p.place(begin), m[1])
					}
					paragraph, begin = "", i+1
				default:
					paragraph = strings.TrimSpace(paragraph + " " + strings.TrimLeft(line, "-*0123456789. "))
				}
			}
		}
	}
}
