# Thalweg only: adjacent strings, as in older policies.
vcl 4.1;

backend default {
    .host = "127.0.0.1";
}

sub vcl_recv {
    set req.http.X-Key = "a" req.url "b" req.http.host;
}

sub vcl_deliver {
    set resp.http.X-Served-By = server.identity ":" obj.hits;
}
