package auditlog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// The kinds of what decides beside policies.
const (
	PodSecurity = "PodSecurity"
	// Webhook is a webhook of anybody's. Gatehouse's names the policy, which is then the Rule.
	Webhook = "Webhook"
)

// Outcome is what admission did to a request.
type Outcome string

// The outcomes.
const (
	Refused Outcome = "refused"
	// Warned is an admitted request with a violation of a policy that warns. The log has only those that are audited too.
	Warned Outcome = "warned"
	// Audited is an admitted request with a violation of a policy that audits.
	Audited Outcome = "audited"
	Exempt  Outcome = "exempt"
	// Failed is a request that a webhook did not answer: refused, or admitted without it.
	Failed Outcome = "failed"
)

// Finding is what one policy, Pod Security or webhook did to a request.
type Finding struct {
	Outcome Outcome
	// Kind is that of a policy, PodSecurity or Webhook. Policy is its name, or the level of Pod Security with its version.
	Kind, Policy, Binding string
	// Rule is "validations[0]" if the log says so. Of a webhook it is the policy, if its answer names one.
	Rule string
	// Exception is the PolicyException that exempts the request, "" for an exemption of Pod Security.
	Exception string
	Message   string
}

// Prefixes and suffixes of the annotations of events.
const (
	nativePrefix       = "validation.policy.admission.k8s.io/"
	failuresSuffix     = "/validation_failure"
	deniedBySuffix     = "/denied-by"
	exceptedBySuffix   = "/excepted-by"
	podSecurityPrefix  = "pod-security.kubernetes.io/"
	failedOpenPrefix   = "failed-open."
	webhookFailedOpens = ".webhook.admission.k8s.io/"
)

// The messages of refusals, behind what NewForbidden of the API server puts in front of them.
var (
	forbidden        = regexp.MustCompile(`^[^\s"]+(?: "(?:[^"\\]|\\.)*")? is forbidden: `) // the name of the object is quoted as in Go
	byPolicy         = regexp.MustCompile(`(?s)^ValidatingAdmissionPolicy '([^']*)'(?: with binding '([^']*)')? denied request: (.*)$`)
	byMutatingPolicy = regexp.MustCompile(`(?s)^policy (?:'([^']*)' with binding '([^']*)'|"([^"]*)") denied request: (.*)$`)
	byPodSecurity    = regexp.MustCompile(`(?s)^(?:would violate|violates) PodSecurity "([^"]*)": (.*)$`)
	byWebhook        = regexp.MustCompile(`(?s)^admission webhook "([^"]*)" denied the request(?:: | )(.*)$`)
	webhookFailed    = regexp.MustCompile(`(?s)^(?:Internal error occurred: )?failed calling webhook "([^"]*)": (.*)$`)
)

// failure is an audited violation, in the annotation of the API server and of Gatehouse.
type failure struct {
	Message           string   `json:"message"`
	Policy            string   `json:"policy"`
	Binding           string   `json:"binding"`
	ExpressionIndex   int      `json:"expressionIndex"`
	ValidationActions []string `json:"validationActions"`
}

// Findings returns what admission did to a request that has ended, in a fixed order. The error is an annotation that cannot be read.
func Findings(e *auditv1.Event) (found []Finding, err error) {
	found = refusals(e)
	for _, key := range slices.Sorted(maps.Keys(e.Annotations)) {
		value := e.Annotations[key]
		webhook, isFailures := strings.CutSuffix(key, failuresSuffix)
		excepting, isExcepted := strings.CutSuffix(key, exceptedBySuffix)
		switch {
		case isFailures:
			audited, unreadable := failures(key, webhook, value)
			found, err = append(found, audited...), cmp.Or(err, unreadable)
		case isExcepted:
			for exception := range strings.SplitSeq(value, ", ") {
				name, rule, _ := strings.Cut(exception, ":")
				policy, _, _ := strings.Cut(rule, "/")
				found = append(found, Finding{Outcome: Exempt, Kind: Webhook, Policy: excepting, Rule: policy, Exception: name})
			}
		case key == podSecurityPrefix+"audit-violations":
			if m := byPodSecurity.FindStringSubmatch(value); m != nil {
				found = append(found, Finding{Outcome: Audited, Kind: PodSecurity, Policy: m[1], Message: m[2]})
			} else {
				found = append(found, Finding{Outcome: Audited, Kind: PodSecurity, Message: value})
			}
		case key == podSecurityPrefix+"exempt":
			found = append(found, Finding{Outcome: Exempt, Kind: PodSecurity, Policy: e.Annotations[podSecurityPrefix+"enforce-policy"], Message: "exempt by its " + value})
		case strings.HasPrefix(key, failedOpenPrefix) && strings.Contains(key, webhookFailedOpens):
			found = append(found, Finding{Outcome: Failed, Kind: Webhook, Policy: value, Message: "admitted without an answer of the webhook"})
		}
	}
	return found, err
}

// failures returns the audited violations of an annotation.
func failures(key, webhook, value string) (found []Finding, err error) {
	var list []failure
	if err := json.Unmarshal([]byte(value), &list); err != nil {
		return nil, fmt.Errorf("annotation %q cannot be read: %w", key, err)
	}
	for i := range list {
		f := &list[i]
		one := Finding{Outcome: Audited, Kind: Webhook, Policy: webhook, Binding: f.Binding, Rule: f.Policy, Message: f.Message}
		if webhook+"/" == nativePrefix {
			one.Kind, one.Policy, one.Rule = "ValidatingAdmissionPolicy", f.Policy, fmt.Sprintf("validations[%d]", f.ExpressionIndex)
		}
		if slices.Contains(f.ValidationActions, "Warn") {
			one.Outcome = Warned
		}
		found = append(found, one)
	}
	return found, nil
}

// refusals returns who refused the request.
func refusals(e *auditv1.Event) []Finding {
	if e.ResponseStatus == nil || e.ResponseStatus.Code < http.StatusBadRequest {
		return nil
	}
	message := forbidden.ReplaceAllString(e.ResponseStatus.Message, "")
	one := Finding{Outcome: Refused}
	switch m := []string(nil); {
	case match(&m, byPolicy, message):
		one.Kind, one.Policy, one.Binding, one.Message = "ValidatingAdmissionPolicy", m[1], m[2], m[3]
	case match(&m, byMutatingPolicy, message):
		one.Kind, one.Policy, one.Binding, one.Message = "MutatingAdmissionPolicy", m[1]+m[3], m[2], m[4]
	case match(&m, byPodSecurity, message):
		one.Kind, one.Policy, one.Message = PodSecurity, m[1], m[2]
	case match(&m, byWebhook, message):
		one.Kind, one.Policy, one.Message = Webhook, m[1], m[2]
		return deniedBy(e, one)
	case match(&m, webhookFailed, message):
		one.Outcome, one.Kind, one.Policy, one.Message = Failed, Webhook, m[1], m[2]
	default:
		return nil
	}
	return []Finding{one}
}

// match sets what a pattern finds in a text, and reports whether it does.
func match(found *[]string, pattern *regexp.Regexp, text string) bool {
	*found = pattern.FindStringSubmatch(text)
	return *found != nil
}

// deniedBy returns a refusal for each policy that the answer of a webhook names.
func deniedBy(e *auditv1.Event, one Finding) (found []Finding) {
	names := e.Annotations[one.Policy+deniedBySuffix]
	if names == "" {
		return []Finding{one}
	}
	for name := range strings.SplitSeq(names, ",") {
		one.Rule, one.Binding, _ = strings.Cut(name, "/")
		found = append(found, one)
	}
	return found
}
