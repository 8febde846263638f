package e2e

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
)

var (
	formTag   = regexp.MustCompile(`(?s)<form[^>]*>.*?</form>`)
	inputTag  = regexp.MustCompile(`<input[^>]*>`)
	attribute = regexp.MustCompile(`([a-z]+)="([^"]*)"`)
)

// Visit does what somebody with a browser does who is sent to an address of dex: follow redirects, type the address and
// the password, confirm the code of a device. It returns the page at the end of it, which is somebody else's if dex
// sends the browser there.
func (s *dexServer) Visit(ctx context.Context, address, email, password string) (string, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return "", err
	}
	browser := &http.Client{Transport: s.client.Transport, Jar: jar, Timeout: s.client.Timeout}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return "", err
	}
	var last *url.URL
	browser.CheckRedirect = func(request *http.Request, via []*http.Request) error {
		last = request.URL
		if len(via) > 20 {
			return errors.New("redirected again and again")
		}
		return nil
	}
	const mostForms = 4
	for range mostForms {
		last = request.URL
		page, err := dexAnswer(browser, request)
		if err != nil {
			return "", fmt.Errorf("browse: %w", err)
		}
		if strings.Contains(page, "login-error") {
			return "", fmt.Errorf("browse: dex does not let %q in", email)
		}
		form := formTag.FindString(page)
		if form == "" {
			return page, nil
		}
		request, err = fill(ctx, last, form, email, password)
		if err != nil {
			return "", fmt.Errorf("browse: %w", err)
		}
	}
	return "", fmt.Errorf("browse: still a form after %d others", mostForms)
}

// fill returns the request that a form makes with what is there already, the address and the password.
func fill(ctx context.Context, page *url.URL, form, email, password string) (*http.Request, error) {
	action, err := page.Parse(attributes(form)["action"])
	if err != nil {
		return nil, err
	}
	values := url.Values{}
	for _, input := range inputTag.FindAllString(form, -1) {
		given := attributes(input)
		switch given["name"] {
		case "login":
			given["value"] = email
		case "password":
			given["value"] = password
		}
		values.Set(given["name"], given["value"])
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, action.String(), strings.NewReader(values.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return request, nil
}

// attributes returns those of the first tag.
func attributes(text string) map[string]string {
	tag, _, _ := strings.Cut(text, ">")
	found := map[string]string{}
	for _, match := range attribute.FindAllStringSubmatch(tag, -1) {
		found[match[1]] = html.UnescapeString(match[2])
	}
	return found
}
