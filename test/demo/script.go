package main

import (
	_ "embed"
	"strings"
)

// script is what is shown. An empty line ends a step, and each line of a step begins with what it is:
//
//	==   the title            =>  what has been shown, for the summary
//	#    a comment            @   something to wait for, by its name among the waits
//	$    a command that must succeed; ! one that must fail; & one that runs on; > goes on with a command
//	+    what the command must print, - what it must not; spaces stand for any number of spaces
//
// Everything else is what the reader is about to see. The names that stage.replacer has stand for their values.
//
//go:embed script.txt
var script string

// step shows one thing and checks it. Each builds on those before it.
type step struct {
	title, summary, says string
	lines                []line
}

// line is a line of a step, with what is expected of a command.
type line struct {
	kind            string
	text            string
	prints, doesNot []string
}

// steps returns the steps of the script. The first is the setup.
func steps() []step {
	var all []step
	for text := range strings.SplitSeq(strings.TrimSpace(script), "\n\n") {
		var s step
		for text := range strings.SplitSeq(text, "\n") {
			kind, rest, _ := strings.Cut(text, " ")
			last := &line{}
			if len(s.lines) > 0 {
				last = &s.lines[len(s.lines)-1]
			}
			switch kind {
			case "==":
				s.title = rest
			case "=>":
				s.summary = rest
			case "#", "@", "$", "!", "&":
				s.lines = append(s.lines, line{kind: kind, text: rest})
			case ">":
				last.text += "\n" + rest
			case "+":
				last.prints = append(last.prints, rest)
			case "-":
				last.doesNot = append(last.doesNot, rest)
			default:
				s.says = strings.TrimSpace(s.says + "\n" + text)
			}
		}
		all = append(all, s)
	}
	return all
}

// check returns what is not as expected of a command.
func (l line) check(text string, code int) []string {
	var problems []string
	if l.kind == "!" && code == 0 {
		problems = append(problems, "it must fail, and does not")
	}
	if l.kind == "$" && code != 0 {
		problems = append(problems, "it must succeed, and does not")
	}
	for _, want := range l.prints {
		if !strings.Contains(fold(text), fold(want)) {
			problems = append(problems, "its output must have "+want)
		}
	}
	for _, unwanted := range l.doesNot {
		if strings.Contains(fold(text), fold(unwanted)) {
			problems = append(problems, "its output must not have "+unwanted)
		}
	}
	return problems
}

func fold(text string) string { return strings.Join(strings.Fields(text), " ") }
