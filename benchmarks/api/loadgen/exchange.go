package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
)

const agent = "bench/1.0"

// exchanger sends one request, own being header fields of its own, and reads its whole answer; keep says whether the body is wanted.
type exchanger interface {
	exchange(method, path, own, contentType string, body []byte, keep bool) (status int, answer []byte, size int64, err error)
}

type dialer struct {
	host   string
	server string
	tls    *tls.Config
	h2     *multiplexed // one HTTP/2 connection for all, or nil
}

func newDialer(s settings) (*dialer, error) {
	parsed, err := url.Parse(s.server)
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(s.authority)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("no certificate in %s", s.authority)
	}
	pair, err := tls.LoadX509KeyPair(s.certificate, s.key)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{
		RootCAs:      pool,
		Certificates: []tls.Certificate{pair},
		ServerName:   parsed.Hostname(),
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{"http/1.1"},
	}
	d := &dialer{host: parsed.Host, server: s.server, tls: config}
	if s.protocol == "h2" {
		both := config.Clone()
		both.NextProtos = []string{"h2"}
		transport := &http.Transport{TLSClientConfig: both, ForceAttemptHTTP2: true, DisableCompression: true}
		d.h2 = &multiplexed{server: s.server, client: &http.Client{Transport: transport}}
	}
	return d, nil
}

func (d *dialer) protocol() string {
	if d.h2 != nil {
		return "h2"
	}
	return "http/1.1"
}

// stream opens an answer that goes on: over a connection of its own, or as a stream of the shared one.
func (d *dialer) stream(path, own string) (io.ReadCloser, error) {
	var response *http.Response
	if d.h2 != nil {
		request, err := d.h2.request(http.MethodGet, path, own, "", nil)
		if err != nil {
			return nil, err
		}
		if response, err = d.h2.client.Do(request); err != nil {
			return nil, err
		}
	} else {
		connection, err := d.connect()
		if err != nil {
			return nil, err
		}
		if err := connection.send(http.MethodGet, path, own, "", nil); err != nil {
			return nil, err
		}
		if response, err = http.ReadResponse(connection.reader, nil); err != nil {
			return nil, err
		}
		response.Body = streamed{response.Body, connection.secure}
	}
	if response.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(io.LimitReader(response.Body, 600))
		return nil, fmt.Errorf("GET %s: status %d: %s", path, response.StatusCode, answer)
	}
	return response.Body, nil
}

// streamed ends the connection when the answer is closed, for it has no end that could be waited for.
type streamed struct {
	io.Reader
	io.Closer
}

// dial makes a connection: TLS 1.3 with our certificate, never resumed, for there is no cache of sessions.
func (d *dialer) dial() (*tls.Conn, error) {
	plain, err := new(net.Dialer).DialContext(context.Background(), "tcp", d.host)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(plain, d.tls)
	if err := secure.Handshake(); err != nil {
		return nil, errors.Join(err, plain.Close())
	}
	return secure, nil
}

func (d *dialer) connect() (*connection, error) {
	secure, err := d.dial()
	if err != nil {
		return nil, err
	}
	return &connection{secure: secure, reader: bufio.NewReaderSize(secure, 64<<10), host: d.host, buffer: make([]byte, 256<<10)}, nil
}

// connection speaks HTTP/1.1 with as little work as possible: the generator shall not be what is measured.
type connection struct {
	secure *tls.Conn
	reader *bufio.Reader
	host   string
	head   bytes.Buffer
	buffer []byte
}

func (c *connection) send(method, path, own, contentType string, body []byte) error {
	c.head.Reset()
	c.head.WriteString(method)
	c.head.WriteByte(' ')
	c.head.WriteString(path)
	c.head.WriteString(" HTTP/1.1\r\nHost: ")
	c.head.WriteString(c.host)
	c.head.WriteString("\r\nUser-Agent: " + agent + "\r\nAccept: application/json\r\n")
	c.head.WriteString(own)
	if body != nil {
		c.head.WriteString("Content-Type: ")
		c.head.WriteString(contentType)
		c.head.WriteString("\r\nContent-Length: ")
		c.head.WriteString(strconv.Itoa(len(body)))
		c.head.WriteString("\r\n")
	}
	c.head.WriteString("\r\n")
	c.head.Write(body)
	_, err := c.secure.Write(c.head.Bytes())
	return err
}

func (c *connection) exchange(method, path, own, contentType string, body []byte, keep bool) (int, []byte, int64, error) {
	if err := c.send(method, path, own, contentType, body); err != nil {
		return 0, nil, 0, err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return 0, nil, 0, err
	}
	defer response.Body.Close()
	answer, size, err := read(response.Body, c.buffer, keep || response.StatusCode >= http.StatusBadRequest)
	return response.StatusCode, answer, size, err
}

func read(body io.Reader, buffer []byte, keep bool) ([]byte, int64, error) {
	if keep {
		answer, err := io.ReadAll(body)
		return answer, int64(len(answer)), err
	}
	var size int64
	for {
		n, err := body.Read(buffer)
		size += int64(n)
		if err == io.EOF {
			return nil, size, nil
		}
		if err != nil {
			return nil, size, err
		}
	}
}

type multiplexed struct {
	server string
	client *http.Client
}

func (m *multiplexed) request(method, path, own, contentType string, body []byte) (*http.Request, error) {
	if own != "" {
		return nil, errors.New("requests with header fields of their own are sent over HTTP/1.1")
	}
	request, err := http.NewRequest(method, m.server+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", agent)
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", contentType)
	}
	return request, nil
}

func (m *multiplexed) exchange(method, path, own, contentType string, body []byte, keep bool) (int, []byte, int64, error) {
	request, err := m.request(method, path, own, contentType, body)
	if err != nil {
		return 0, nil, 0, err
	}
	response, err := m.client.Do(request)
	if err != nil {
		return 0, nil, 0, err
	}
	defer response.Body.Close()
	if response.ProtoMajor != 2 {
		return 0, nil, 0, fmt.Errorf("the server negotiated %s, not HTTP/2", response.Proto)
	}
	answer, size, err := read(response.Body, make([]byte, 64<<10), keep || response.StatusCode >= http.StatusBadRequest)
	return response.StatusCode, answer, size, err
}
