package main

import (
	"fmt"
	"regexp"
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
	configuration string // of Gatehouse
	usual         bool   // whether the controller-runtime webhook does the same work
	divisor       int    // of the number of requests in a round
	body          body
	refused       body // a review that must be refused, to prove that the configuration is in force
	wants         wants
}

// scenarios returns all scenarios, in the order of the table, or those whose
// name matches.
func scenarios(match *regexp.Regexp) ([]scenario, error) {
	refusedPod, err := refusedPod()
	if err != nil {
		return nil, err
	}
	refusedReview, err := podReview(refusedPod)
	if err != nil {
		return nil, err
	}
	var all []scenario
	for _, endpoint := range []struct {
		name, path, configuration string
		wants                     wants
		refused                   body
	}{
		{"mutate", pathMutate, onePolicy, wants{patch: true}, body{}},
		{"validate", pathValidate, onePolicy, wants{}, refusedReview},
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
					all = append(all, scenario{
						name: fmt.Sprintf("%s/%s/%s/c%d", endpoint.name, size.name, protocol, concurrency),
						path: endpoint.path, protocol: protocol, concurrency: concurrency,
						configuration: endpoint.configuration, usual: true,
						divisor: size.divisor * (1 + 1/concurrency),
						body:    review, refused: endpoint.refused, wants: endpoint.wants,
					})
				}
			}
		}
	}
	pod, err := realisticPod(5_000)
	if err != nil {
		return nil, err
	}
	review, err := podReview(pod)
	if err != nil {
		return nil, err
	}
	for _, policies := range []struct{ name, configuration string }{
		{"validate-10-policies", tenPolicies},
		{"validate-pod-security", podSecurity},
	} {
		for _, protocol := range []string{http2, http1} {
			all = append(all, scenario{
				name: policies.name + "/5KB/" + protocol + "/c16",
				path: pathValidate, protocol: protocol, concurrency: 16,
				configuration: policies.configuration,
				divisor:       1,
				body:          review, refused: refusedReview,
			})
		}
	}
	text, _ := benchToken()
	token, err := tokenReview(text)
	if err != nil {
		return nil, err
	}
	wrongToken, err := tokenReview(refusedToken())
	if err != nil {
		return nil, err
	}
	for _, concurrency := range []int{16, 1} {
		all = append(all, scenario{
			name: fmt.Sprintf("authenticate/%s/c%d", http2, concurrency),
			path: pathAuthenticate, protocol: http2, concurrency: concurrency,
			configuration: onePolicy, usual: true,
			divisor: 1 + 1/concurrency,
			body:    token, refused: wrongToken, wants: wants{user: tokenUser},
		})
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
	if len(selected) == 0 {
		return nil, fmt.Errorf("--scenario %q matches none of the %d scenarios; the first is %q", match, len(all), all[0].name)
	}
	return selected, nil
}

// bar is a ratio to the null webhook that Gatehouse must not exceed.
type bar struct {
	Scenario string  `json:"scenario"`
	Limit    float64 `json:"limit"`
}

// memoryLimit is the resident memory that Gatehouse must not exceed after a
// run, in bytes.
const memoryLimit = 64 << 20

// bars are the ratios that are promised, each for the scenario that facts are
// usually quoted for: 5 KB pods over HTTP/2 at concurrency 16.
func bars() []bar {
	return []bar{
		{"mutate/5KB/http2/c16", 2.0},
		{"validate/5KB/http2/c16", 3.0},
		{"authenticate/http2/c16", 1.5},
	}
}
