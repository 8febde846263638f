package main

import (
	"fmt"
	"maps"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gatehouse-dev/gatehouse/webhooks/api/v1alpha1"
	"github.com/gatehouse-dev/gatehouse/webhooks/authn"
)

// The paths of the endpoints.
const (
	pathMutate       = "/mutate"
	pathValidate     = "/validate"
	pathAuthenticate = "/authenticate"
	pathAuthorize    = "/authorize"
)

// The HTTP versions that the API server speaks to a webhook: HTTP/1.1 to a
// Service, HTTP/2 to a loopback URL and for token reviews.
const (
	http1 = "http1"
	http2 = "http2"
)

// scenario is one row of the table: what is posted, how, and to which
// configuration of Gatehouse.
type scenario struct {
	name          string
	path          string // empty: connections are made, without requests
	nullPath      string // the null webhook's path, if it is another one
	protocol      string
	concurrency   int
	configuration string
	inTree        bool   // the API server's own plugin evaluates the same policies
	review        []byte // the body of the requests
	refused       []byte // a review that must be refused, to prove that the configuration is active
	wants         wants
}

// wants is the right answer to a scenario's review.
type wants struct {
	user   string   // the authenticated user of a TokenReview
	access bool     // the review is a SubjectAccessReview on which there is no opinion
	denies []string // parts of the message of a refusal; without any, the review is allowed
	adds   []string // the containers, and volumes of the same names, that the patch adds
	sets   []string // strings that are in the patched pod, and not in the original; without any and without adds, there is no patch
}

// patch reports whether the answer has a patch.
func (w *wants) patch() bool { return len(w.adds)+len(w.sets) > 0 }

// scenarios returns the scenarios whose name matches, in the order of the table.
func scenarios(match *regexp.Regexp) []scenario {
	var all []scenario
	add := func(s scenario, size string) {
		name := s.name + size
		for _, s.protocol = range []string{http2, http1} {
			for _, s.concurrency = range []int{16, 1} {
				s.name = fmt.Sprintf("%s/%s/c%d", name, s.protocol, s.concurrency)
				if match.MatchString(s.name) && (s.path != "" || s.protocol == http1 && s.concurrency > 1) {
					all = append(all, s)
				}
			}
		}
	}

	// One profile and one policy, with pods of several sizes.
	small, medium := reviewOf(realisticPod(1_500)), reviewOf(realisticPod(5_000))
	large, huge := reviewOf(realisticPod(60_000)), reviewOf(realisticPod(600_000))
	refused := reviewOf(refusedPod())
	for _, s := range []scenario{
		{name: "mutate", path: pathMutate, wants: wants{adds: []string{sidecarName}}},
		{name: "validate", path: pathValidate, refused: refused},
	} {
		s.configuration = onePolicy
		s.review = small
		add(s, "/1.5KB")
		s.review = medium
		add(s, "/5KB")
		s.review = large
		add(s, "/60KB")
		if s.path == pathMutate {
			s.review = huge
			add(s, "/600KB")
		}
	}

	// Other profiles. A misspelt annotation must be refused, which proves that a
	// configuration whose right answer has no patch is active.
	pod := func(labels, annotations map[string]string) []byte {
		return reviewOf(realisticPod(5_000, func(pod *corev1.Pod) {
			maps.Copy(pod.Labels, labels)
			maps.Copy(pod.Annotations, annotations)
		}))
	}
	two := wants{adds: []string{sidecarName, meshName}}
	for _, s := range []scenario{
		{
			name: "mutate-not-selected", configuration: onePolicy,
			review: pod(map[string]string{optOutLabel: "true"}, nil), refused: pod(nil, map[string]string{v1alpha1.InjectAnnotation: "perhaps"}),
		},
		{name: "mutate-2-profiles", configuration: twoProfiles, review: medium, wants: two},
		{name: "mutate-2-of-200-profiles", configuration: manyProfiles, review: medium, wants: two},
		{
			name: "mutate-parameters", configuration: parameters,
			review: pod(nil, map[string]string{
				"telemetry.sidecar.gatehouse.dev/port": parameterPort, "telemetry.sidecar.gatehouse.dev/memory": parameterMemory,
			}),
			wants: wants{adds: []string{sidecarName}, sets: []string{`"--listen=:` + parameterPort + `"`, `"memory":"` + parameterMemory + `"`}},
		},
	} {
		s.path = pathMutate
		add(s, "/5KB")
	}

	// Mutating policies, without profiles.
	mutated := wants{sets: []string{mutatedLabel}}
	for _, s := range []scenario{
		{name: "mutate-no-policies", configuration: noProfiles},
		{name: "mutate-other-policies", configuration: othersMutate},
		{name: "mutate-apply", configuration: applyLabel, wants: mutated, inTree: true},
		{name: "mutate-patch", configuration: patchLabel, wants: mutated, inTree: true},
		{name: "mutate-1-of-10-policies", configuration: oneOfTenMutates, wants: mutated, inTree: true},
		{name: "mutate-100-policies", configuration: hundredMutate},
	} {
		s.path, s.review = pathMutate, medium
		add(s, "/5KB")
	}

	// The same with all reviews recorded.
	for _, s := range []scenario{
		{name: "mutate-recorded", path: pathMutate, configuration: onePolicy + recorded, wants: wants{adds: []string{sidecarName}}},
		{name: "validate-10-policies-recorded", path: pathValidate, configuration: tenPolicies + recorded, refused: refused},
	} {
		s.review = medium
		add(s, "/5KB")
	}

	// Other policies.
	denied := reviewOf(realisticPod(5_000, breakRules))
	excepted := reviewOf(realisticPod(5_000, func(pod *corev1.Pod) { pod.Spec.HostNetwork = true }))
	for _, s := range []scenario{
		{name: "validate-no-policies", configuration: noPolicies, review: medium},
		{name: "validate-1-policy", configuration: oneRule, review: medium, refused: refused, inTree: true},
		{name: "validate-10-policies", configuration: tenPolicies, review: medium, refused: refused, inTree: true},
		{name: "validate-10-rules", configuration: tenRules, review: medium, refused: refused},
		{name: "validate-10-of-100-policies", configuration: tenOf100Policies, review: medium, refused: refused, inTree: true},
		{name: "validate-10-of-1000-policies", configuration: manyPolicies, review: medium, refused: refused, inTree: true},
		{name: "validate-100-policies", configuration: hundredPolicies, review: medium, refused: refused, inTree: true},
		{name: "validate-10-violations", configuration: tenPolicies, review: denied, wants: wants{denies: ruleMessages()}},
		{name: "validate-1-of-100-exceptions", configuration: exceptions, review: excepted, refused: refused},
		{name: "validate-pod-security", configuration: podSecurity, review: medium, refused: refused},
	} {
		s.path = pathValidate
		add(s, "/5KB")
	}
	for _, of := range []struct {
		size   string
		review []byte
	}{{"/1.5KB", small}, {"/60KB", large}, {"/600KB", huge}} {
		add(scenario{name: "validate-10-policies", path: pathValidate, configuration: tenPolicies, review: of.review, refused: refused, inTree: true}, of.size)
	}
	add(scenario{
		name: "validate-template", path: pathValidate, configuration: workloadTemplates,
		review: reviewOf(deploymentOf(realisticPod(4_000))), refused: reviewOf(deploymentOf(refusedPod())),
	}, "/5KB")

	// Token reviews, for which the API server speaks HTTP/2.
	token, _ := benchToken()
	wrong, _ := authn.NewToken(tokenID, [25]byte{2})
	for _, s := range []scenario{
		{name: "authenticate", configuration: onePolicy, review: tokenReview(token)},
		{name: "authenticate-100000-tokens", configuration: manyTokens, review: tokenReview(token)},
		{name: "authenticate-jwt-rs256", configuration: issuer, review: tokenReview(tokenRS256), nullPath: pathVerify},
		{name: "authenticate-jwt-es256", configuration: issuer, review: tokenReview(tokenES256), nullPath: pathVerify},
		{name: "authenticate-jwt-rs256-expressions", configuration: issuerCEL, review: tokenReview(tokenRS256), nullPath: pathVerify},
	} {
		s.path, s.refused, s.wants = pathAuthenticate, tokenReview(wrong), wants{user: tokenUser}
		add(s, "")
	}

	// Requests of tokens with a scope, for which the API server speaks HTTP/2.
	add(scenario{
		name: "authorize", path: pathAuthorize, configuration: onePolicy, review: accessReview("list"), refused: accessReview("delete"), wants: wants{access: true},
	}, "")

	// Connections without a request, over HTTP/1.1 alone, as to a Service: an API server
	// makes one for each call beyond the 25 that it keeps.
	add(scenario{name: "handshake-files", configuration: fileCertificate}, "")
	add(scenario{name: "handshake-self-signed", configuration: ownCertificate}, "")
	return all
}

// bar is a measurement that Gatehouse must not exceed.
type bar struct {
	what     string
	limit    float64
	measured func(*report) float64 // 0 if it was not measured
}

// bars returns all bars: ratios at concurrency 16, of reviews over HTTP/2 and of
// handshakes over HTTP/1.1, and resident memory after a run.
func bars() []bar {
	var all []bar
	for _, b := range []struct {
		scenario string
		to       string // another scenario of Gatehouse, or inTreeServer in the same one; empty is the null webhook in it
		limit    float64
	}{
		{"mutate/1.5KB/http2/c16", "", 1.6},
		{"mutate/5KB/http2/c16", "", 1.6},
		{"mutate/60KB/http2/c16", "", 2.5},
		{"mutate-not-selected/5KB/http2/c16", "", 1.3},
		{"mutate-2-of-200-profiles/5KB/http2/c16", "mutate-2-profiles/5KB/http2/c16", 1.3},
		{"mutate-apply/5KB/http2/c16", inTreeServer, 0.5},
		{"mutate-patch/5KB/http2/c16", inTreeServer, 0.3},
		{"mutate-1-of-10-policies/5KB/http2/c16", inTreeServer, 0.15},
		{"mutate-other-policies/5KB/http2/c16", "mutate-no-policies/5KB/http2/c16", 1.02},
		{"validate/5KB/http2/c16", "", 3.0},
		{"validate-10-policies/5KB/http2/c16", "", 2.5},
		{"validate-10-rules/5KB/http2/c16", "", 2.5},
		{"validate-10-of-1000-policies/5KB/http2/c16", "validate-10-policies/5KB/http2/c16", 1.1},
		{"validate-pod-security/5KB/http2/c16", "", 1.6},
		{"authenticate/http2/c16", "", 1.3},
		{"authenticate-100000-tokens/http2/c16", "authenticate/http2/c16", 1.05},
		{"authenticate-jwt-rs256/http2/c16", "", 1.2},
		{"authenticate-jwt-es256/http2/c16", "", 1.2},
		{"authorize/http2/c16", "", 1.5}, // what kube-apiserver speaks to the webhooks of its kubeconfigs
		{"handshake-files/http1/c16", "", 1.05},
		{"handshake-self-signed/http1/c16", "", 1.05},
	} {
		ratio := bar{b.scenario + ", ratio to null", b.limit, func(r *report) float64 {
			return medianRatio(r.samples(b.scenario, gatehouseServer), r.samples(b.scenario, nullServer))
		}}
		switch b.to {
		case "":
		case inTreeServer:
			ratio = bar{b.scenario + ", ratio to in-tree", b.limit, func(r *report) float64 {
				return medianRatio(r.samples(b.scenario, gatehouseServer), r.samples(b.scenario, inTreeServer))
			}}
		default:
			ratio = bar{b.scenario + ", ratio to " + b.to, b.limit, func(r *report) float64 {
				return medianRatio(r.samples(b.scenario, gatehouseServer), r.samples(b.to, gatehouseServer))
			}}
		}
		all = append(all, ratio)
	}
	all = append(all,
		bar{"resident memory after the run, MiB", 64, func(r *report) float64 {
			most := 0.0
			for _, m := range r.memory {
				if m.kind == gatehouseServer && m.configuration != hundredPolicies && m.configuration != manyPolicies && m.configuration != manyTokens {
					most = max(most, m.resident)
				}
			}
			return most
		}},
		bar{"resident memory of 100 policies over none, MiB", 20, func(r *report) float64 { return r.added(noPolicies, hundredPolicies) }},
		bar{"resident memory of 100 mutating policies over one, MiB", 20, func(r *report) float64 { return r.added(othersMutate, hundredMutate) }},
		bar{"resident memory of 100,000 access tokens, MiB", 64, func(r *report) float64 { return r.added(onePolicy, manyTokens) }},
	)
	return append(all, recordingBars()...)
}

// recordingBars are the bars of what recording everything adds.
func recordingBars() []bar {
	var all []bar
	for _, of := range []struct{ recorded, without string }{
		{"mutate-recorded/5KB/", "mutate/5KB/"},
		{"validate-10-policies-recorded/5KB/", "validate-10-policies/5KB/"},
	} {
		for _, protocol := range []string{http2, http1} {
			with, without := of.recorded+protocol+"/c16", of.without+protocol+"/c16"
			all = append(all,
				bar{with + ", over " + without + ", ratio to null", 0.15, func(r *report) float64 { return r.addedRatio(without, with) }},
				bar{with + ", 99th percentile, ratio to " + without, 1.1, func(r *report) float64 {
					p99 := func(scenario string) float64 {
						return median(each(r.samples(scenario, gatehouseServer), func(s sample) time.Duration { return s.p99 })).Seconds()
					}
					if p99(without) == 0 {
						return 0
					}
					return p99(with) / p99(without)
				}})
		}
	}
	return append(all,
		bar{"resident memory of recording, MiB", 16, func(r *report) float64 { return r.added(tenPolicies, tenPolicies+recorded) }},
		bar{"a recorded review of 5 KB, bytes on disk", 400, func(r *report) float64 { return r.diskBytes }})
}
