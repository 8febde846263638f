package authn

import "slices"

// goodAudiences returns the requested audiences that a token is good for, in the order of
// the request and each once, and whether the token is good for the request at all. Own are
// the token's audiences.
//
// A token without audiences answers with none, which by the API's definition
// (TokenReviewStatus.audiences) means: valid for the API server's own audiences
// and no others. Whoever asks about another audience has to see that none came
// back; the API server does.
//
// A request without audiences stands for the audience of the API server
// (TokenReviewSpec.audiences), which is not known here. A token that is bound to audiences
// is refused then: an API server that sends no audiences would not compare those of the
// answer.
func goodAudiences(own, requested []string) (good []string, ok bool) {
	if len(own) == 0 {
		return nil, true
	}
	for _, audience := range requested {
		i := slices.Index(own, audience)
		switch {
		case i < 0 || slices.Contains(good, audience):
		case good == nil:
			// Nearly every answer has one audience: a part of the token's own
			// list without spare capacity, so that a second one is appended to
			// a copy.
			good = own[i : i+1 : i+1]
		default:
			good = append(good, own[i])
		}
	}
	return good, len(good) > 0
}
