package source

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/certs"
)

// mostNamed is how many of a list are named in a text.
const mostNamed = 3

// summary is what Trust.Verify says in one line, with a sentence for what is the
// same for several webhooks of a registration.
func summary(doubt error) string {
	type sentence struct {
		registration, why string
		webhooks          []string
	}
	var sentences []sentence
	for _, err := range splitJoined(doubt) {
		d, ok := errors.AsType[*certs.DistrustError](err)
		if !ok {
			sentences = append(sentences, sentence{why: err.Error()})
			continue
		}
		why := d.Err.Error()
		i := slices.IndexFunc(sentences, func(s sentence) bool { return s.registration == d.Registration && s.why == why })
		if i < 0 {
			i = len(sentences)
			sentences = append(sentences, sentence{registration: d.Registration, why: why})
		}
		sentences[i].webhooks = append(sentences[i].webhooks, fmt.Sprintf("%q", d.Webhook))
	}
	texts := make([]string, 0, len(sentences))
	for _, s := range sentences {
		switch len(s.webhooks) {
		case 0:
			texts = append(texts, s.why)
		case 1:
			texts = append(texts, s.registration+", webhook "+s.webhooks[0]+": "+s.why)
		default:
			texts = append(texts, s.registration+", webhooks "+joinFirst(s.webhooks)+": "+s.why)
		}
	}
	return strings.Join(texts, "; ")
}

// namesNotServed says by which names registrations call that the certificate is not
// for, "" if it is for all of them. The argument is what Trust.Verify says.
func namesNotServed(doubt error) string {
	var names []string
	callers := map[string][]string{}
	for _, err := range splitJoined(doubt) {
		host, ok := errors.AsType[x509.HostnameError](err)
		if !ok {
			continue
		}
		caller := "a registration"
		if d, ok := errors.AsType[*certs.DistrustError](err); ok {
			caller = d.Registration
		}
		if !slices.Contains(names, host.Host) {
			names = append(names, host.Host)
		}
		if !slices.Contains(callers[host.Host], caller) {
			callers[host.Host] = append(callers[host.Host], caller)
		}
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("the name %.255q that is called by %s", name, joinFirst(callers[name]))
	}
	return joinFirst(names)
}

// splitJoined are the errors of errors.Join, in their order, or the one that there is.
func splitJoined(err error) []error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	list := several.Unwrap()
	texts := make([]string, 0, len(list))
	for _, e := range list {
		texts = append(texts, e.Error())
	}
	if strings.Join(texts, "\n") != err.Error() {
		return []error{err} // one sentence with two causes
	}
	return list
}

// joinFirst is a list in words, with the first of them named.
func joinFirst(list []string) string {
	switch {
	case len(list) > mostNamed:
		return fmt.Sprintf("%s and %d more", strings.Join(list[:mostNamed], ", "), len(list)-mostNamed)
	case len(list) > 1:
		return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
	default:
		return strings.Join(list, "")
	}
}
