package sidecar

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/profile"
)

// choice is what a pod or a namespace wants of one profile.
type choice uint8

const (
	unset choice = iota
	asks
	declines
)

// injectValue is the value of the inject annotation of a pod or a namespace.
type injectValue struct {
	all             choice
	asked, declined []string
}

// maxInjectLength bounds the annotation, in bytes: 60 names of profiles at their longest.
const maxInjectLength = 16 << 10

type invalidValue struct{ message, hint string }

const accepted = `must be "true", "false", or names of profiles, with a minus to decline: "mesh,-logs"`

func (s *Set) parseInject(text string) (injectValue, *invalidValue) {
	switch text {
	case "true":
		return injectValue{all: asks}, nil
	case "false":
		return injectValue{all: declines}, nil
	}
	if len(text) > maxInjectLength {
		return injectValue{}, &invalidValue{message: fmt.Sprintf("the value has %d bytes, at most %d are allowed: %s", len(text), maxInjectLength, accepted)}
	}
	var w injectValue
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		rest, minus := strings.CutPrefix(name, "-")
		_, known := s.byName[rest]
		switch {
		case rest == "" || rest == "true" || rest == "false":
			return injectValue{}, &invalidValue{message: podtext.Quote(text) + " is invalid: " + accepted}
		case !known:
			return injectValue{}, &invalidValue{
				message: podtext.Quote(rest) + " is not the name of a sidecar profile: " + accepted,
				hint:    cmp.Or(switchHint(rest), diagnostic.DidYouMean(rest, append(s.Profiles(), "true", "false")...)),
			}
		case minus:
			w.declined = append(w.declined, rest)
		default:
			w.asked = append(w.asked, rest)
		}
	}
	for _, name := range w.asked {
		if slices.Contains(w.declined, name) {
			return injectValue{}, &invalidValue{message: podtext.Quote(text) + " both requests " + podtext.Quote(name) + " and declines it"}
		}
	}
	return w, nil
}

// switchHint returns a hint for the words by which YAML and other injectors switch on and off.
func switchHint(word string) string {
	switch strings.ToLower(word) {
	case "true", "yes", "on", "enabled":
		return `did you mean "true"?`
	case "false", "no", "off", "disabled":
		return `did you mean "false"?`
	default:
		return ""
	}
}

// choiceFor returns the choice for a profile: by its own name, else by the name of the
// profile that it replaces, else the choice for all.
func (w *injectValue) choiceFor(p *profile.Profile) choice {
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
