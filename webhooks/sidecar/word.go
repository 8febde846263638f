package sidecar

import (
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
)

// wish is what a pod or a namespace wants of one profile.
type wish uint8

const (
	silent wish = iota
	asks
	declines
)

// word is what the inject annotation of a pod or a namespace says.
type word struct {
	all             wish
	asked, declined []string
}

// maxWord bounds the text of a word, in bytes: 60 names of profiles at their
// longest.
const maxWord = 16 << 10

// wrong says why a word cannot be understood.
type wrong struct{ message, hint string }

const accepted = `allowed are "true", "false", or names of profiles, with a minus to decline: "mesh,-logs"`

// parseWord reads the inject annotation.
func (s *Set) parseWord(text string) (word, *wrong) {
	switch text {
	case "true":
		return word{all: asks}, nil
	case "false":
		return word{all: declines}, nil
	}
	if len(text) > maxWord {
		return word{}, &wrong{message: "the text is too long: " + accepted}
	}
	var w word
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		rest, minus := strings.CutPrefix(name, "-")
		_, known := s.byName[rest]
		switch {
		case rest == "" || rest == "true" || rest == "false":
			return word{}, &wrong{message: podtext.Quote(text) + " is not known: " + accepted}
		case !known:
			names := make([]string, len(s.profiles), len(s.profiles)+2)
			for i, p := range s.profiles {
				names[i] = p.Name
			}
			return word{}, &wrong{
				message: podtext.Quote(rest) + " is not the name of a sidecar profile: " + accepted,
				hint:    diagnostic.DidYouMean(rest, append(names, "true", "false")...),
			}
		case minus:
			w.declined = append(w.declined, rest)
		default:
			w.asked = append(w.asked, rest)
		}
	}
	for _, name := range w.asked {
		if slices.Contains(w.declined, name) {
			return word{}, &wrong{message: podtext.Quote(text) + " both asks for " + podtext.Quote(name) + " and declines it"}
		}
	}
	return w, nil
}

// about is what the word says about a profile: by its own name, else by the name
// of the profile that it replaces, else about all.
func (w *word) about(p *profile.Profile) wish {
	for _, name := range [...]string{p.Name, p.Replaces} {
		switch {
		case name == "":
		case slices.Contains(w.asked, name):
			return asks
		case slices.Contains(w.declined, name):
			return declines
		}
	}
	return w.all
}

const injectField = "metadata.annotations[" + v1alpha1.InjectAnnotation + "]"
