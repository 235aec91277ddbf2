//! Debian's nginx: serves files of known content over each protocol, and proxies other paths to a
//! backend.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use thalweg_load::content::Content;

/// Time limit for nginx to accept connections.
const START_MAX: Duration = Duration::from_secs(30);
/// Responses per connection at [`Nginx::short`].
pub(crate) const SHORT: u64 = 2;

/// A running nginx. Dropping it stops nginx and removes its files.
pub(crate) struct Nginx {
    child: Child,
    directory: PathBuf,
    /// Address for HTTP/1.1 over TLS.
    pub(crate) tls: SocketAddr,
    /// Address for HTTP/2 or HTTP/1.1 over TLS.
    pub(crate) tls2: SocketAddr,
    /// Address for cleartext HTTP/2.
    pub(crate) plain2: SocketAddr,
    /// Address like `tls2`, whose connections close after [`SHORT`] responses.
    pub(crate) short: SocketAddr,
}

impl Nginx {
    /// Starts nginx, serving `files` of the given sizes and everything else from `backend`.
    pub(crate) fn start(test: &str, files: &[(&str, usize)], backend: SocketAddr) -> Self {
        let directory =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("nginx-{test}-{}", std::process::id()));
        fs::create_dir_all(directory.join("files")).unwrap();
        for (path, length) in files {
            let mut content = vec![0; *length];
            Content::of(path).fill(0, &mut content);
            fs::write(directory.join("files").join(&path[1..]), content).unwrap();
        }
        sign(&directory);
        // Keep all ports bound until all are chosen, so that they differ.
        let held = [(); 4].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
        let [tls, tls2, plain2, short] = held.map(|listener| listener.local_addr().unwrap());
        let config = config(&directory, [tls, tls2, plain2, short], backend);
        fs::write(directory.join("nginx.conf"), config).unwrap();
        let log = directory.join("errors");
        let child = Command::new("/usr/sbin/nginx")
            .arg("-p")
            .arg(&directory)
            .arg("-c")
            .arg(directory.join("nginx.conf"))
            .args(["-e", "stderr"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .expect("tools/setup test installs nginx");
        let mut server = Self { child, directory, tls, tls2, plain2, short };
        let started = Instant::now();
        while TcpStream::connect(tls).is_err() {
            let has_ended = server.child.try_wait().unwrap().is_some() || started.elapsed() > START_MAX;
            assert!(!has_ended, "nginx must start: {}", fs::read_to_string(&log).unwrap());
            thread::sleep(Duration::from_millis(10));
        }
        server
    }

    /// Returns the path of the authority certificate that signed nginx's certificate for 127.0.0.1.
    pub(crate) fn authority(&self) -> String {
        self.directory.join("authority.pem").to_str().unwrap().to_owned()
    }

    /// Stops nginx and returns its request log: version, method, content, path and SNI name, with
    /// `-` for missing values.
    pub(crate) fn finish(mut self) -> Vec<String> {
        kill_process(Pid::from_child(&self.child), Signal::QUIT).unwrap();
        self.child.wait().unwrap();
        let log = fs::read_to_string(self.directory.join("asked")).unwrap();
        log.lines().map(str::to_owned).collect()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let _ = self.child.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Creates an authority, and a certificate for 127.0.0.1 signed by it.
fn sign(directory: &Path) {
    let key = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    for command in [
        format!("{key} -keyout authority.key -out authority.pem -subj /CN=authority"),
        format!(
            "{key} -CA authority.pem -CAkey authority.key -keyout key.pem -out certificate.pem -subj /CN=server \
             -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE"
        ),
    ] {
        let output = Command::new("openssl").args(command.split_whitespace()).current_dir(directory).output();
        let output = output.expect("tools/setup test installs openssl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn config(directory: &Path, [tls, tls2, plain2, short]: [SocketAddr; 4], backend: SocketAddr) -> String {
    let directory = directory.display();
    format!(
        "daemon off; worker_processes 1; pid {directory}/pid; user root;
         events {{ worker_connections 1024; }}
         http {{
             log_format asked '$server_protocol $request_method $request_body $uri $ssl_server_name';
             access_log {directory}/asked asked;
             client_body_temp_path {directory}/body;
             proxy_temp_path {directory}/proxy;
             fastcgi_temp_path {directory}/fastcgi;
             uwsgi_temp_path {directory}/uwsgi;
             scgi_temp_path {directory}/scgi;
             ssl_certificate {directory}/certificate.pem;
             ssl_certificate_key {directory}/key.pem;
             server {{
                 listen {tls} ssl;
                 listen {plain2} http2;
                 listen {tls2} ssl http2;
                 root {directory}/files;
                 location / {{ try_files $uri @backend; }}
                 location @backend {{ proxy_pass http://{backend}; proxy_http_version 1.1; proxy_buffering off; }}
             }}
             server {{
                 listen {short} ssl http2;
                 root {directory}/files;
                 keepalive_requests {SHORT};
             }}
         }}"
    )
}
