package record

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/replay"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/config"
	"github.com/gatehouse-dev/gatehouse/webhooks/diagnostic"
)

const (
	// maxSuggested bounds the names in all suggested exceptions.
	maxSuggested = 10_000
	// maxExceptionNames and maxExceptionRules are those of the schema of PolicyException.
	maxExceptionNames = 256
	maxExceptionRules = 64
)

// suggestions are PolicyExceptions for what would be refused. They are for one goroutine.
type suggestions struct {
	// rules say where exceptions take effect.
	rules v1alpha1.ExceptionRules
	all   map[exceptionKey]*suggestion
	names int
	// others are the reviews that no exception can be about, by reason.
	others map[string]int
}

type exceptionKey struct{ kind, policy, namespace string }

// suggestion is one PolicyException.
type suggestion struct {
	// rules are those that refuse; "" is every rule of the policy.
	rules map[string]bool
	// names are patterns with the number of their reviews.
	names map[string]int
	// kinds are those of cluster-scoped objects.
	kinds map[string]bool
}

// newSuggestions returns no suggestions yet, for a configuration that may be nil.
func newSuggestions(c *config.Config) *suggestions {
	s := &suggestions{all: map[exceptionKey]*suggestion{}, others: map[string]int{}}
	if c != nil && c.Policy.Configuration != nil {
		s.rules = c.Policy.Configuration.Exceptions
	}
	return s
}

// plainName matches the names of objects, with what the API server generates of a name.
var plainName = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9._:]*[A-Za-z0-9])?(-?\*)?$`)

// add adds what a result asks for.
func (s *suggestions) add(r *replay.Result) {
	if !slices.Contains(r.Changes, replay.NewlyRefused) {
		return
	}
	name := exceptionName(&r.Review)
	namespace := r.Review.Namespace
	if r.Review.Kind == "Namespace" {
		namespace = "" // as for exceptions
	}
	kind, _, _ := strings.Cut(r.Review.Kind, ".")
	valid := plainName.MatchString(name) && len(validation.IsDNS1123Label(strings.ToLower(kind))) == 0 && (namespace == "" || len(validation.IsDNS1123Label(namespace)) == 0)
	if !valid || len(name) > validation.DNS1123SubdomainMaxLength {
		s.others["an exception cannot have the name of the object"]++
		return
	}
	for _, rule := range r.Rules {
		switch rule.Kind {
		case "AdmissionPolicy", "ValidatingAdmissionPolicy":
		case "TokenReview":
			s.others["logins have no exceptions"]++
			continue
		default:
			s.others["what refuses is not a policy, so that it has no exceptions"]++
			continue
		}
		key := exceptionKey{rule.Kind, rule.Name, namespace}
		one := s.all[key]
		if one == nil || one.names[name] == 0 {
			if s.names == maxSuggested {
				s.others[fmt.Sprintf("only %d names are written", maxSuggested)]++
				continue
			}
			s.names++
		}
		if one == nil {
			one = &suggestion{rules: map[string]bool{}, names: map[string]int{}, kinds: map[string]bool{}}
			s.all[key] = one
		}
		one.rules[rule.Rule] = true
		one.names[name]++
		if namespace == "" {
			one.kinds[kind] = true
		}
	}
}

// exceptionName returns the name by which an exception selects an object: that of its workload with what is generated behind it.
func exceptionName(s *replay.Subject) string {
	kind, _, _ := strings.Cut(s.Kind, ".")
	ofKind, workload, _ := strings.Cut(s.Workload, "/")
	if ofKind == kind || workload == "" {
		return s.Name
	}
	return workload + "-*"
}

// write writes the exceptions to a file, or standard output for "-".
func (s *suggestions) write(streams cli.Streams, path string) (err error) {
	report := func(format string, args ...any) {
		_, _ = fmt.Fprintf(streams.Err, "gatehouse: "+format+"\n", args...) // best effort
	}
	for _, reason := range slices.Sorted(maps.Keys(s.others)) {
		report("--suggest-exceptions: no exception for %s: %s", diagnostic.Count(s.others[reason], "review"), reason)
	}
	if len(s.all) == 0 {
		report("--suggest-exceptions: nothing to except, and nothing is written")
		return nil
	}
	if path == "-" {
		return s.print(streams.Out)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // documents are no secret, and the user names the file
	if err != nil {
		return fmt.Errorf("--suggest-exceptions: %q cannot be written: %w", path, cli.Cause(err))
	}
	if err := errors.Join(s.print(file), file.Close()); err != nil {
		return fmt.Errorf("--suggest-exceptions: %q cannot be written: %w", path, cli.Cause(err))
	}
	report("--suggest-exceptions: fill in reason and expiresAt in %s; lint rejects the documents until then", cli.ShellQuote(path))
	return nil
}

// print writes the exceptions.
func (s *suggestions) print(to io.Writer) error {
	out := bufio.NewWriter(to)
	keys := slices.SortedFunc(maps.Keys(s.all), func(a, b exceptionKey) int {
		return cmp.Or(cmp.Compare(a.policy, b.policy), cmp.Compare(a.kind, b.kind), cmp.Compare(a.namespace, b.namespace))
	})
	first := true
	for _, key := range keys {
		one := s.all[key]
		part := 0
		for names := range slices.Chunk(slices.Sorted(maps.Keys(one.names)), maxExceptionNames) {
			if !first {
				_, _ = io.WriteString(out, "---\n") // Flush has the error, here and below
			}
			first = false
			s.printOne(out, key, one, names, part)
			part++
		}
	}
	return out.Flush()
}

// printOne writes one exception. Every text in it is quoted: it comes from a recording.
func (s *suggestions) printOne(out io.Writer, key exceptionKey, one *suggestion, names []string, part int) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	line("# Written by gatehouse replay. lint rejects this document until reason and expiresAt are filled in.")
	line("apiVersion: %s", v1alpha1.GroupVersion)
	line("kind: PolicyException")
	line("metadata:")
	line("  name: %s", quoteYAML(exceptionTitle(key, part)))
	line("  namespace: %s", quoteYAML(s.namespaceFor(key.namespace)))
	line("spec:")
	line(`  reason: "" # TODO: why are these objects exempt, and who has decided it?`)
	line(`  expiresAt: "" # TODO: when does the exemption end? For example 2030-12-31T00:00:00Z`)
	line("  policies:")
	line("    - kind: %s", key.kind)
	line("      name: %s", quoteYAML(key.policy))
	if rules := slices.Sorted(maps.Keys(one.rules)); !one.rules[""] && len(rules) <= maxExceptionRules {
		line("      rules:")
		for _, rule := range rules {
			line("        - %s", quoteYAML(rule))
		}
	}
	line("  match:")
	if key.namespace != "" {
		line("    namespaces: [%s]", quoteYAML(key.namespace))
	}
	line("    names:")
	for _, name := range names {
		line("      - %s # %s", quoteYAML(name), diagnostic.Count(one.names[name], "review"))
	}
	if len(one.kinds) > 0 {
		line("    matchConditions:")
		line("      - name: kind")
		quoted := make([]string, 0, len(one.kinds))
		for _, kind := range slices.Sorted(maps.Keys(one.kinds)) {
			quoted = append(quoted, strconv.QuoteToASCII(kind))
		}
		line("        expression: %s", quoteYAML("request.kind.kind in ["+strings.Join(quoted, ", ")+"]"))
	}
}

// namespaceFor returns the namespace in which an exception for objects of a namespace takes effect.
func (s *suggestions) namespaceFor(namespace string) string {
	own := slices.Contains(s.rules.OwnNamespaces, "*") || slices.Contains(s.rules.OwnNamespaces, namespace)
	switch {
	case own && namespace != "":
		return namespace
	case len(s.rules.Namespaces) > 0:
		return s.rules.Namespaces[0]
	default:
		return "gatehouse-system"
	}
}

// exceptionTitle returns the name of an exception.
func exceptionTitle(key exceptionKey, part int) string {
	const most = 200 // of the 253 that a name may have
	title := "replay-" + strings.TrimSuffix(key.policy+"-"+key.namespace, "-")
	if key.kind == "ValidatingAdmissionPolicy" {
		title += "-vap"
	}
	if title = strings.ToLower(title); len(title) > most {
		sum := sha256.Sum256([]byte(title))
		title = strings.TrimRight(title[:most-17], "-.") + "-" + hex.EncodeToString(sum[:8])
	}
	if part > 0 {
		title += "-" + strconv.Itoa(part+1)
	}
	return title
}

// quoteYAML returns a string in double quotes, as YAML reads it.
func quoteYAML(text string) string { return strconv.QuoteToASCII(strings.ToValidUTF8(text, "\ufffd")) }
