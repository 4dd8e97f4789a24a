// Starts foresay serve for the tests, on a port that the system chooses. FORESAY_PROGRAM names the program.
import { spawn } from 'node:child_process';

export async function serve(...options) {
  const program = process.env.FORESAY_PROGRAM;
  if (!program) throw new Error('FORESAY_PROGRAM names no program');
  const child = spawn(program, ['serve', '--listen', '127.0.0.1:0', '--context', '1024', ...options]);
  const ended = new Promise((resolve) => { child.on('exit', (status) => resolve(status)); });
  let said = '';
  const url = await new Promise((resolve, reject) => {
    const read = (text) => {
      said += text;
      // The second line comes when the model is there.
      const found = said.match(/listening on (http:\/\/[0-9.:]+)[^]*\nmodel /);
      if (found) resolve(found[1]);
    };
    child.stdout.on('data', read);
    child.stderr.on('data', read);
    child.on('exit', () => reject(new Error('the server ended: ' + said)));
  });
  return {
    url,
    kill: () => child.kill('SIGKILL'),
    async stop() {
      child.kill('SIGTERM');
      return ended;
    },
  };
}
