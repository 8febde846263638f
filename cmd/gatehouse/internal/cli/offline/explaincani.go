package offline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/cli"
	"github.com/gatehouse-dev/gatehouse/cmd/gatehouse/internal/offline/request"
	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
	"github.com/gatehouse-dev/gatehouse/webhooks/authz"
)

// canIFlag is the flag that asks what the scope of a token includes.
const canIFlag = "can-i"

// addCanI adds the flag.
func (f *explainTokenFlags) addCanI(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.canI, canIFlag, "", `request that the token's scope may include, with --token-file: "VERB RESOURCE[.GROUP][/SUBRESOURCE] [NAME] [-n NAMESPACE]", or "VERB /PATH"`)
}

// explainedAccess is what the scope of a token says about a request.
type explainedAccess struct {
	// Request is the question.
	Request string `json:"request"`
	// Outcome is "no-opinion" for a request that the scope includes, "denied", or "unknown".
	Outcome authz.Outcome `json:"outcome"`
	Reason  authz.Reason  `json:"reason"`
	// Scope describes the scope, and Rule is that of its rules that includes the request.
	Scope string              `json:"scope,omitempty"`
	Rule  *v1alpha1.ScopeRule `json:"rule,omitempty"`
}

// explainAccess returns what the scope of an authenticated token says about a request, nil if the token is not authenticated.
func explainAccess(set *authn.Set, d *authn.Decision, text string, asked *authorizationv1.SubjectAccessReviewSpec) *explainedAccess {
	if !d.Status.Authenticated {
		return nil
	}
	for key, values := range d.Status.User.Extra {
		if asked.Extra == nil {
			asked.Extra = make(map[string]authorizationv1.ExtraValue)
		}
		asked.Extra[key] = authorizationv1.ExtraValue(values)
	}
	access := set.Scopes().Decide(asked)
	return &explainedAccess{Request: text, Outcome: access.Outcome, Reason: access.Reason, Scope: access.Scope, Rule: access.Rule}
}

// text returns the answer on one line.
func (a *explainedAccess) text() string {
	const others = "; whether the user may do it, the API server's other authorizers decide"
	switch a.Reason {
	case authz.ReasonUnscoped:
		return "the token has no scope" + others
	case authz.ReasonAlways:
		return "every scope includes this" + others
	case authz.ReasonRule:
		rule, _ := json.Marshal(a.Rule) //nolint:errchkjson // it consists of strings
		return fmt.Sprintf("the scope %s includes this, by the rule %s%s", a.Scope, rule, others)
	case authz.ReasonOutside:
		return fmt.Sprintf("denied: no rule of the scope %s includes this", a.Scope)
	case authz.ReasonMalformed, authz.ReasonUnknownScope, authz.ReasonProbe:
	}
	return string(a.Outcome) + ": " + string(a.Reason)
}

// exit returns the exit code for a token that is authenticated.
func (a *explainedAccess) exit() error {
	switch a.Outcome {
	case authz.NoOpinion:
		return nil
	case authz.Denied:
		return cli.Exit(cli.ExitNo)
	case authz.Unknown:
	}
	return cli.Exit(cli.ExitUnknown)
}

// parseAccess reads a request as --can-i has it.
func parseAccess(text string) (*authorizationv1.SubjectAccessReviewSpec, error) {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf(`--%s %.100q: %s (hint: --%s "delete pods -n shop", or "get deployments.apps/scale web -n shop", or "get /metrics")`, canIFlag, text, fmt.Sprintf(format, args...), canIFlag)
	}
	words := strings.Fields(text)
	if len(words) < 2 { //nolint:mnd // a verb and what it is about
		return nil, wrong("needs a verb and a resource or a path")
	}
	if lower := strings.ToLower(words[0]); lower != words[0] {
		return nil, wrong("a verb has lower-case letters: %q", lower)
	}
	if strings.HasPrefix(words[1], "/") {
		if len(words) > 2 { //nolint:mnd // a verb and a path
			return nil, wrong("%q: a path stands alone", words[2])
		}
		return &authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: words[0], Path: words[1]}}, nil
	}
	a := &authorizationv1.ResourceAttributes{Verb: words[0]}
	resource, sub, withSub := strings.Cut(words[1], "/")
	a.Subresource = sub
	var withGroup bool
	a.Resource, a.Group, withGroup = strings.Cut(resource, ".")
	switch {
	case strings.ToLower(words[1]) != words[1]:
		return nil, wrong("a resource has lower-case letters: %q", strings.ToLower(words[1]))
	case withSub && sub == "":
		return nil, wrong("%q lacks the subresource", words[1])
	case withGroup && len(validation.IsDNS1123Subdomain(a.Group)) > 0:
		return nil, wrong("%q is not an API group", a.Group)
	case !withGroup:
		var err error
		if a.Group, err = groupOf(a.Resource); err != nil {
			return nil, wrong("%s", err)
		}
	}
	for rest := words[2:]; len(rest) > 0; {
		switch value, isFlag := strings.CutPrefix(rest[0], "--namespace="); {
		case isFlag:
			a.Namespace, rest = value, rest[1:]
		case rest[0] == "-n" || rest[0] == "--namespace":
			if len(rest) == 1 {
				return nil, wrong("%s needs a namespace", rest[0])
			}
			a.Namespace, rest = rest[1], rest[2:]
		case strings.HasPrefix(rest[0], "-") || a.Name != "":
			return nil, wrong("%q is not understood", rest[0])
		default:
			a.Name, rest = rest[0], rest[1:]
		}
	}
	if a.Group == "" && a.Resource == "namespaces" && a.Name != "" {
		a.Namespace = a.Name // as the API server reads it from the path
	}
	return &authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: a}, nil
}

// groupOf returns the group of a resource of Kubernetes. One that is in several groups, or unknown, needs its group.
func groupOf(resource string) (string, error) {
	const gone = "extensions"
	known := request.NewResources(nil)
	groups := slices.DeleteFunc(known.Groups(resource), func(group string) bool { return group == gone })
	switch {
	case slices.Contains(groups, ""):
		return "", nil
	case len(groups) == 1:
		return groups[0], nil
	case len(groups) == 0 && len(known.Groups(resource+"s")) > 0:
		return "", fmt.Errorf("%q is not a resource: did you mean %q?", resource, resource+"s")
	default:
		return "", fmt.Errorf("%q needs its group, as in %s.%s", resource, resource, append(groups, "example.org")[0])
	}
}
