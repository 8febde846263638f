package main

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
)

// The paths of the three endpoints.
const (
	pathMutate       = "/mutate"
	pathValidate     = "/validate"
	pathAuthenticate = "/authenticate"
)

// The HTTP versions that the API server speaks to a webhook: HTTP/1.1 to a
// Service, HTTP/2 to a loopback URL and for token reviews.
const (
	http1 = "http1"
	http2 = "http2"
)

// scenario is one row of the table: what is posted, how, and to which
// configuration.
type scenario struct {
	name          string
	path          string
	protocol      string
	concurrency   int
	nullPath      string // the null webhook's path, if it is another one
	configuration string // of Gatehouse
	usual         bool   // whether the controller-runtime webhook does the same work
	divisor       int    // of the number of requests in a round
	handshake     bool   // whether connections are made, and no requests
	body          body
	refused       body // a review that must be refused, to prove that the configuration is in force
	wants         wants
	adds          []string // the containers, and volumes of the same names, that the patch must add
	sets          []string // texts that must be in the patched pod, and were not in the pod
}

// scenarios returns all scenarios, in the order of the table, or those whose
// name matches. That none does is an error, unless a compilation's name does.
func scenarios(match *regexp.Regexp) ([]scenario, error) {
	var all []scenario
	for _, part := range []func() ([]scenario, error){bySize, byProfiles, byPolicies, byTemplate, byToken, byHandshake} {
		some, err := part()
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	if match == nil {
		return all, nil
	}
	var selected []scenario
	for _, s := range all {
		if match.MatchString(s.name) {
			selected = append(selected, s)
		}
	}
	if len(selected) == 0 && len(compilations(match)) == 0 {
		return nil, fmt.Errorf("--scenario %q matches none of the %d scenarios; the first is %q", match, len(all), all[0].name)
	}
	return selected, nil
}

// bySize are one applying profile and one policy, with pods of three sizes.
func bySize() ([]scenario, error) {
	refused, err := refusedReview()
	if err != nil {
		return nil, err
	}
	var all []scenario
	for _, endpoint := range []scenario{
		{name: "mutate", path: pathMutate, wants: wants{patch: true}, adds: []string{sidecarName}},
		{name: "validate", path: pathValidate, refused: refused},
	} {
		for _, size := range []struct {
			name           string
			bytes, divisor int
		}{{"1.5KB", 1_500, 1}, {"5KB", 5_000, 1}, {"60KB", 60_000, 5}} {
			pod, err := realisticPod(size.bytes)
			if err != nil {
				return nil, err
			}
			review, err := podReview(pod)
			if err != nil {
				return nil, err
			}
			for _, protocol := range []string{http2, http1} {
				for _, concurrency := range []int{16, 1} {
					s := endpoint
					s.name = fmt.Sprintf("%s/%s/%s/c%d", endpoint.name, size.name, protocol, concurrency)
					s.protocol, s.concurrency = protocol, concurrency
					s.configuration, s.usual = onePolicy, true
					s.divisor, s.body = size.divisor*(1+1/concurrency), review
					all = append(all, s)
				}
			}
		}
	}
	return all, nil
}

// byProfiles are other profiles than one that applies.
func byProfiles() ([]scenario, error) {
	plain, err := markedReview(nil, nil)
	if err != nil {
		return nil, err
	}
	notSelected, err := markedReview(map[string]string{optOutLabel: "true"}, nil)
	if err != nil {
		return nil, err
	}
	// That no patch comes proves nothing: a misspelt wish must be refused.
	misspelt, err := markedReview(nil, map[string]string{v1alpha1.InjectAnnotation: "perhaps"})
	if err != nil {
		return nil, err
	}
	parameterised, err := markedReview(nil, map[string]string{parameterPortAnnotation: parameterPort, parameterMemoryAnnotation: parameterMemory})
	if err != nil {
		return nil, err
	}
	two := []string{sidecarName, meshName}
	return onBothProtocols([]scenario{
		{name: "mutate-not-selected", configuration: onePolicy, body: notSelected, refused: misspelt},
		{name: "mutate-2-profiles", configuration: twoProfiles, body: plain, wants: wants{patch: true}, adds: two},
		{name: "mutate-2-of-200-profiles", configuration: manyProfiles, body: plain, wants: wants{patch: true}, adds: two},
		{
			name: "mutate-parameters", configuration: parameters, body: parameterised, wants: wants{patch: true},
			adds: []string{sidecarName}, sets: []string{`"--listen=:` + parameterPort + `"`, `"memory":"` + parameterMemory + `"`},
		},
	}, pathMutate), nil
}

// byPolicies are other policies than one, and other answers than yes to a pod.
func byPolicies() ([]scenario, error) {
	review, err := markedReview(nil, nil)
	if err != nil {
		return nil, err
	}
	refused, err := refusedReview()
	if err != nil {
		return nil, err
	}
	denied, err := reviewOf(deniedPod())
	if err != nil {
		return nil, err
	}
	excepted, err := reviewOf(exceptedPod())
	if err != nil {
		return nil, err
	}
	large, err := reviewOf(realisticPod(60_000))
	if err != nil {
		return nil, err
	}
	all := onBothProtocols([]scenario{
		{name: "validate-no-policies", configuration: noPolicies, body: review},
		{name: "validate-10-policies", configuration: tenPolicies, body: review, refused: refused},
		{name: "validate-10-rules", configuration: tenRules, body: review, refused: refused},
		{name: "validate-10-of-1000-policies", configuration: manyPolicies, body: review, refused: refused},
		{name: "validate-100-policies", configuration: hundredPolicies, body: review, refused: refused},
		{name: "validate-10-violations", configuration: tenPolicies, body: denied, wants: wants{denies: ruleMessages()}},
		{name: "validate-1-of-100-exceptions", configuration: exceptions, body: excepted, refused: refused},
		{name: "validate-pod-security", configuration: podSecurity, body: review, refused: refused},
	}, pathValidate)
	ofLarge := onBothProtocols([]scenario{
		{name: "validate-10-policies", configuration: tenPolicies, body: large, refused: refused},
	}, pathValidate)
	for i := range ofLarge {
		ofLarge[i].name = strings.Replace(ofLarge[i].name, "/5KB/", "/60KB/", 1)
		ofLarge[i].divisor = 5
	}
	return append(all, ofLarge...), nil
}

// byTemplate is a Deployment whose pods a policy is about.
func byTemplate() ([]scenario, error) {
	good, err := realisticPod(4_000)
	if err != nil {
		return nil, err
	}
	bad, err := refusedPod()
	if err != nil {
		return nil, err
	}
	var reviews [2]body
	for i, pod := range []*corev1.Pod{good, bad} {
		deployment, err := deploymentOf(pod)
		if err != nil {
			return nil, err
		}
		if reviews[i], err = deploymentReview(deployment); err != nil {
			return nil, err
		}
	}
	return onBothProtocols([]scenario{
		{name: "validate-template", configuration: workloadTemplates, body: reviews[0], refused: reviews[1]},
	}, pathValidate), nil
}

// byToken are token reviews, for which the API server speaks HTTP/2.
func byToken() ([]scenario, error) {
	text, _ := benchToken()
	token, err := tokenReview(text)
	if err != nil {
		return nil, err
	}
	wrong, err := tokenReview(refusedToken())
	if err != nil {
		return nil, err
	}
	var all []scenario
	for _, concurrency := range []int{16, 1} {
		all = append(all, scenario{
			name: fmt.Sprintf("authenticate/%s/c%d", http2, concurrency),
			path: pathAuthenticate, protocol: http2, concurrency: concurrency,
			configuration: onePolicy, usual: true,
			divisor: 1 + 1/concurrency,
			body:    token, refused: wrong, wants: wants{user: tokenUser},
		})
	}
	for _, s := range []scenario{
		{name: "authenticate-100000-tokens", configuration: manyTokens, body: token},
		{name: "authenticate-jwt-rs256", configuration: issuer, nullPath: pathVerify},
		{name: "authenticate-jwt-es256", configuration: issuer, nullPath: pathVerify},
		{name: "authenticate-jwt-rs256-expressions", configuration: issuerCEL, nullPath: pathVerify},
	} {
		if s.nullPath != "" {
			signed := tokenRS256
			if strings.Contains(s.name, "es256") {
				signed = tokenES256
			}
			if s.body, err = tokenReview(signed); err != nil {
				return nil, err
			}
		}
		s.name += "/" + http2 + "/c16"
		s.path, s.protocol, s.concurrency, s.divisor = pathAuthenticate, http2, 16, 1
		s.refused, s.wants = wrong, wants{user: tokenUser}
		all = append(all, s)
	}
	return all, nil
}

// onBothProtocols completes scenarios with objects of 5 KB that only Gatehouse
// is measured in.
func onBothProtocols(some []scenario, path string) []scenario {
	var all []scenario
	for _, s := range some {
		name := s.name
		for _, protocol := range []string{http2, http1} {
			s.name = name + "/5KB/" + protocol + "/c16"
			s.path, s.protocol, s.concurrency, s.divisor = path, protocol, 16, 1
			all = append(all, s)
		}
	}
	return all
}

// markedReview is the review of a pod of 5 KB with more labels and annotations.
func markedReview(labels, annotations map[string]string) (body, error) {
	return reviewOf(markedPod(5_000, labels, annotations))
}

// refusedReview is the review of refusedPod.
func refusedReview() (body, error) { return reviewOf(refusedPod()) }

// reviewOf is the review of a pod that could be made.
func reviewOf(pod *corev1.Pod, err error) (body, error) {
	if err != nil {
		return body{}, err
	}
	return podReview(pod)
}

// bar is a ratio that Gatehouse must not exceed.
type bar struct {
	Scenario string `json:"scenario"`
	// To is the scenario, of Gatehouse too, that the processor time is compared
	// with. Empty stands for the null webhook in the same scenario.
	To    string  `json:"to,omitempty"`
	Limit float64 `json:"limit"`
}

// Memory is resident memory after a run, compiling a processor's time, for which
// there is nothing to compare with.
const (
	// memoryLimit is what Gatehouse must not exceed, in MiB, with a usual number of
	// policies.
	memoryLimit = 64
	// hundredLimit is what 100 policies may add to that of none, in MiB.
	hundredLimit = 20
	// tokensLimit is what 100,000 access tokens may add, in MiB.
	tokensLimit = 64
	// compileLimit is how many seconds 1,000 policies may take.
	compileLimit = 3
	// changeLimit is the part of them that the change of one policy may take.
	changeLimit = 0.1
)

// bars are the ratios that are promised, at concurrency 16: of reviews over HTTP/2,
// of handshakes over HTTP/1.1.
func bars() []bar {
	return []bar{
		{Scenario: "mutate/1.5KB/http2/c16", Limit: 1.6},
		{Scenario: "mutate/5KB/http2/c16", Limit: 1.6},
		{Scenario: "mutate/60KB/http2/c16", Limit: 2.5},
		{Scenario: "mutate-not-selected/5KB/http2/c16", Limit: 1.3},
		{Scenario: "mutate-2-of-200-profiles/5KB/http2/c16", To: "mutate-2-profiles/5KB/http2/c16", Limit: 1.3},
		{Scenario: "validate/5KB/http2/c16", Limit: 3.0},
		{Scenario: "validate-10-policies/5KB/http2/c16", Limit: 2.5},
		{Scenario: "validate-10-rules/5KB/http2/c16", Limit: 2.5},
		{Scenario: "validate-10-of-1000-policies/5KB/http2/c16", To: "validate-10-policies/5KB/http2/c16", Limit: 1.1},
		{Scenario: "validate-pod-security/5KB/http2/c16", Limit: 1.6},
		{Scenario: "authenticate/http2/c16", Limit: 1.3},
		{Scenario: "authenticate-100000-tokens/http2/c16", To: "authenticate/http2/c16", Limit: 1.05},
		{Scenario: "authenticate-jwt-rs256/http2/c16", Limit: 1.2},
		{Scenario: "authenticate-jwt-es256/http2/c16", Limit: 1.2},
		{Scenario: "handshake-files/http1/c16", Limit: 1.05},
		{Scenario: "handshake-self-signed/http1/c16", Limit: 1.05},
	}
}
